import pytest
from tools.docs.blocks import BlockError, fill_blocks

PAGE = """# Title

Before.
<!-- generated: one thing -->
what was here
<!-- end of generated -->
After.
"""


def make(name: str) -> str:
    if name != "one thing":
        raise LookupError("expected one thing")
    return "what is new\n"


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (PAGE.replace("one thing", "nothing"), "line 4: unknown block 'nothing': expected one thing"),
        (PAGE.replace("<!-- end of generated -->\n", ""), "the block 'one thing' has no end"),
        (PAGE.replace("<!-- generated: one thing -->\n", ""), "line 5: unexpected '<!-- end of generated -->'"),
        (PAGE.replace("what was here", "<!-- generated: two -->"), "line 5: unexpected '<!-- generated: two -->'"),
    ],
)
def test_a_block_that_cannot_be_written_is_named_with_its_line(page: str, told: str) -> None:
    with pytest.raises(BlockError) as raised:
        fill_blocks(page, make)
    assert str(raised.value).startswith(told)
