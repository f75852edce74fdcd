from rolecall.top.keys import KeyDecoder


def keys(*pieces: bytes) -> list[str]:
    decoder = KeyDecoder()
    return [key for piece in pieces for key in decoder.feed(piece)] + decoder.flush()


def test_keys_have_names() -> None:
    assert keys(b"j\r\x7f?") == ["j", "enter", "backspace", "?"]
    assert keys(b"\x1b[A\x1bOB\x1b[5~\x1b[1;5C") == ["up", "down", "page up"]


def test_a_key_may_come_in_pieces() -> None:
    assert keys(b"\x1b", b"[", b"A") == ["up"]
    assert keys("é".encode()[:1], "é".encode()[1:]) == ["é"]


def test_escape_is_what_nothing_follows() -> None:
    assert keys(b"\x1b") == ["escape"]
    assert keys(b"\x1bq") == ["escape", "q"]


def test_what_is_no_key_is_left_out() -> None:
    assert keys(b"\x00\x01\x1b[99~\xff\x1b[") == ["\N{REPLACEMENT CHARACTER}"]
