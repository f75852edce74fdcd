"""The picture of a program's output has what stays on the terminal, and needs nothing from elsewhere."""

from tools.pictures.terminal import picture


def test_a_picture_has_the_text_and_no_address_of_a_font() -> None:
    drawn = picture("plain \x1b[32mdone\x1b[0m", "make demo", 40)
    assert all(f">{text}<" in drawn for text in ("make&#160;demo", "plain&#160;", "done")), drawn
    assert "url(http" not in drawn
