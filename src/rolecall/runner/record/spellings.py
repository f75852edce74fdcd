"""How a text may look inside of other text: escaped for a language, in base64, or broken over lines of YAML.

Each form comes with that of a placeholder of equal length, so that what was encoded can still be decoded.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

MIN_FORM: Final = 6
"""A shorter form would be found where it is none."""

_ROUNDS: Final = 2
_MAX_WORDS: Final = 200
_MAX_IN_URL: Final = 16 << 10
_BREAK: Final = r"( |\\*(?:\n|\\n) *(?:\\+ )?)"
"""A space, or where YAML breaks a line instead: also in double quotes, and with the line end escaped."""

_LINE_WIDTHS: Final = (64, 76)
"""Where OpenSSL, and base64 of coreutils and MIME, break lines."""

_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_JSON_ESCAPE: Final = re.compile(r"\\u(?:00([0-9a-f]{2})|([0-9a-f]{4}))")


def in_json(text: str) -> str:
    """Return a text as it stands between the quotes of a string in JSON that is not escaped to ASCII."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def escaped(value: str) -> Iterable[str]:
    """Return the value and how it looks inside of other text, in which it may have been escaped up to twice."""
    found = last = {value}
    for _ in range(_ROUNDS):
        last = {spelling for text in last for spelling in _once_escaped(text)} - found
        found = found | last
    return found


def in_base64(value: bytes, placeholder: bytes) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value in base64, once and twice encoded, each with the same form of its placeholder."""
    for _ in range(_ROUNDS):
        whole = base64.b64encode(value).decode()
        yield from _with_url_alphabet(whole, base64.b64encode(placeholder).decode())
        for offset in range(3):
            core, replacement = _core(value, offset), _core(placeholder, offset)
            if len(core) >= MIN_FORM:
                yield from _with_url_alphabet(core, replacement)
        value, placeholder = base64.b64encode(value), base64.b64encode(placeholder)


def in_broken_base64(value: bytes, placeholder: bytes) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value in base64 that programs break into lines, with that of its placeholder in one line."""
    whole, replacement = base64.b64encode(value).decode(), base64.b64encode(placeholder).decode()
    core, replacement_of_core = _core(value, 0), _core(placeholder, 0)
    for width in _LINE_WIDTHS:
        if len(core) > width:
            yield _broken(whole, width), replacement
            yield _broken(core, width), replacement_of_core


def without_broken(text: str, value: str, placeholder: str, escape: Callable[[str], str]) -> str:
    """Replace a value of one line that is broken where it has spaces; ``escape`` is what is done to all text."""
    words = value.strip().split(" ")
    if not 1 < len(words) <= _MAX_WORDS or "\n" in value or escape(words[0]) not in text:
        return text
    start = value.index(words[0])
    parts = []
    for word in words:
        parts.append(placeholder[start : start + len(word)])
        start += len(word) + 1
    pattern = _BREAK.join(re.escape(escape(word)) for word in words)

    def replaced(match: re.Match[str]) -> str:
        return "".join(part + gap for part, gap in zip(parts, (*match.groups(), ""), strict=True))

    return re.sub(pattern, replaced, text)


def _once_escaped(text: str) -> Iterator[str]:
    plain, ascii_only = in_json(text), json.dumps(text)[1:-1]
    yield plain
    yield plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")  # as Go writes JSON
    yield ascii_only
    yield _JSON_ESCAPE.sub(_as_in_yaml, ascii_only)
    yield repr(text)[1:-1]
    yield text.replace("'", "''")
    yield text.replace("'", "'\"'\"'")  # in a shell
    yield html.escape(text)
    yield html.escape(text, quote=False)
    if len(text) > _MAX_IN_URL:
        return
    for encoded in (quote(text, safe="", errors="replace"), quote_plus(text, errors="replace")):
        yield encoded
        yield _PERCENT.sub(lambda match: match[0].lower(), encoded)


def _as_in_yaml(match: re.Match[str]) -> str:
    return f"\\x{match[1].upper()}" if match[1] else f"\\u{match[2].upper()}"


def _broken(text: str, width: int) -> str:
    return "\n".join(text[start : start + width] for start in range(0, len(text), width))


def _with_url_alphabet(form: str, replacement: str) -> Iterator[tuple[str, str]]:
    yield form, replacement
    yield form.replace("+", "-").replace("/", "_"), replacement


def _core(value: bytes, offset: int) -> str:
    """Return the characters of base64 that depend on the value alone if so many bytes (modulo 3) stand before it."""
    encoded = base64.b64encode(bytes(offset) + value).decode().rstrip("=")
    rest = (offset + len(value)) % 3
    return encoded[offset + 1 if offset else 0 : len(encoded) - (1 if rest else 0)]
