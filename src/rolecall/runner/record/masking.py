"""Replaces secret values in the text of a record by placeholders of the same length.

A value is found as it is, in the spellings of ``spellings`` (also twice), and in base64, at any place of a longer text
that was encoded. Within a record the same value always gets the same placeholder; the key from which placeholders are
made is random and is never stored. What is not found: parts, hashes and other encodings of a value, and values of less
than ``MIN_ANYWHERE`` characters inside of longer text.

How a text may look inside of other text: escaped for a language, in base64, or broken over lines of YAML.

Each form comes with that of a placeholder of equal length, so that what was encoded can still be decoded.
"""

import base64
import hashlib
import hmac
import html
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

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


MIN_ANYWHERE: Final = 6
"""Values of this length are replaced wherever they occur."""

MIN_WHOLE: Final = 3
"""Shorter ones are replaced where a whole string is equal to them, but not below this length."""

_SHORT_IN_BASE64: Final = 8
"""What is given in base64 is replaced as a whole text up to this length; in longer ones the value itself is found."""

CUT_MARK: Final = "…"
_MIN_LINE: Final = 8
_MAX_PARTS: Final = 1000
_MANY_LINES: Final = 50
"""The lines of a longer value are found as they are only: in every spelling of each, the search would take seconds."""

_HARMLESS: Final = frozenset({"default", "false", "kube-public", "kube-system", "localhost", "null", "true"})
_ALPHABETS: Final = (
    (0x7F, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
    (0x7FF, "àáâãäåæçèéêëìíîïðñòóôõöøùúûüý"),
    (0xFFFF, "あいうえおかきくけこさしすせそたちつてとなにぬねの"),
    (0x10FFFF, "😀😁😂😃😄😅😆😇😈😉😊😋😌😍😎😏"),
)
"""The characters of placeholders, by the highest code point that has as many bytes in UTF-8."""

_ASCII: Final = bytes(ord(_ALPHABETS[0][1][number % len(_ALPHABETS[0][1])]) for number in range(256))


class Mask:
    """The secret values of one record and their placeholders."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._texts: dict[str, str] = {}
        self._in_base64: dict[str, str] = {}
        self._binary: dict[bytes, bytes] = {}
        self._plain_only: set[str] = set()
        self._known_forms: dict[Callable[[str], str], dict[str, str]] = {}

    @property
    def placeholders(self) -> list[str]:
        """The placeholders that may occur in the text."""
        return sorted(self._texts.values())

    def add(self, value: str) -> str:
        """Take note of a secret value, of its lines and of the strings in it if it is JSON; return its placeholder."""
        if value in self._plain_only:
            self._plain_only.remove(value)
            self._known_forms.clear()
        parts = dict.fromkeys(_parts(value))
        for part in (value, *parts):
            if part not in self._texts and len(part) >= MIN_WHOLE and part.lower() not in _HARMLESS:
                self._texts[part] = self._placeholder(part)
                self._known_forms.clear()
                if part != value and len(parts) > _MANY_LINES:
                    self._plain_only.add(part)
        return self._texts.get(value) or self._placeholder(value)

    def add_here(self, value: str) -> str:
        """Return the placeholder of a value that is to be replaced in this place only."""
        return self._placeholder(value)

    def add_bytes(self, value: bytes) -> bytes:
        """Take note of a secret value in bytes, which is text or not; return its placeholder."""
        try:
            return self.add(value.decode()).encode()
        except UnicodeDecodeError:
            placeholder = self._placeholder("x" * len(value), value).encode()
            self._binary[value] = placeholder
            self._known_forms.clear()
            return placeholder

    def add_base64(self, text: str) -> str:
        """Take note of a secret value that is given in base64; return its placeholder, encoded too."""
        try:
            value = base64.b64decode("".join(text.split()), validate=True)
        except ValueError:
            return self.add(text)
        if any(map(str.isspace, text)):
            self.add(text)
        encoded = base64.b64encode(self.add_bytes(value)).decode()
        if value in self._binary or value.decode(errors="replace") in self._texts:
            self._in_base64[text] = encoded
        return encoded

    def without_cut_value(self, text: str) -> str:
        """Return a text that was cut without the beginning of a secret value at its end."""
        if not text.endswith(CUT_MARK):
            return text
        body = text.removesuffix(CUT_MARK)
        values = (*self._texts, *self._in_base64)
        lengths = (_overlap(body, form) for value in values for form in (value, in_json(value)))
        return body[: len(body) - max(lengths, default=0)] + CUT_MARK

    def apply(self, text: str) -> str:
        """Return lines of JSON (not escaped to ASCII, without spaces) with placeholders in place of all values.

        This is fast, and may spoil a line: a value may begin with what ends an escape sequence. See ``apply_to``.
        """
        text = self._replaced(text, in_json)
        short = {in_json(value): placeholder for value, placeholder in self._short.items()}
        if not short:
            return text
        pattern = re.compile(f'"({"|".join(map(re.escape, short))})"(?!:)')
        return pattern.sub(lambda match: f'"{short[match[1]]}"', text)

    def apply_to(self, value: Any) -> Any:
        """Return a JSON value with placeholders in place of all values, in every text, key and number of it."""
        short = self._short
        return _map_all(value, lambda text: short.get(text) or self._replaced(text, str), self._texts.get)

    def apply_to_path(self, path: str) -> str:
        """Return the path of a URL with placeholders in place of values, whichever characters of it are escaped."""
        plain = unquote(path)
        masked = self._replaced(plain, str)
        return path if masked == plain else quote(masked)

    def hides(self, text: str) -> bool:
        """Return whether a text is a secret value or contains one."""
        return text in self._texts or text in self._in_base64 or self._replaced(text, str) != text

    def _replaced(self, text: str, escape: Callable[[str], str]) -> str:
        """Replace the longest forms first: one may contain another. ``escape`` is what was done to all text."""
        for form, placeholder in self._forms(escape).items():
            if form in text:
                text = text.replace(form, placeholder)
        for value, placeholder in self._texts.items():
            if " " in value and len(value) >= MIN_ANYWHERE and value not in self._plain_only:
                text = without_broken(text, value, placeholder, escape)
        return text

    def hider(self, word: str) -> Callable[[str], str]:
        """Return what puts the same word in place of each value in a text, for the values that are known now."""
        forms = sorted(self._forms(str), key=len, reverse=True)
        short = self._short

        def hide(text: str) -> str:
            if text in short:
                return word
            for form in forms:
                if form in text:
                    text = text.replace(form, word)
            return text

        return hide

    def _forms(self, escape: Callable[[str], str]) -> dict[str, str]:
        """Return how values look, the longest first, with what replaces each."""
        found = self._known_forms.get(escape)
        if found is None:
            forms: dict[str, str] = {}
            for value, placeholder in self._texts.items():
                if len(value) >= MIN_ANYWHERE:
                    spellings = (value,) if value in self._plain_only else escaped(value)
                    forms |= dict.fromkeys(map(escape, spellings), placeholder)
            for content, placeholder_bytes in self._all_bytes():
                forms |= dict(in_base64(content, placeholder_bytes))
                for form, replacement in in_broken_base64(content, placeholder_bytes):
                    forms |= dict.fromkeys(map(escape, escaped(form)), replacement)
            found = {form: forms[form] for form in sorted(forms, key=len, reverse=True)}
            self._known_forms[escape] = found
        return found

    @property
    def _short(self) -> dict[str, str]:
        """The values that are replaced where they are a whole text, but not where that is a key."""
        in_base64 = {text: encoded for text, encoded in self._in_base64.items() if len(text) <= _SHORT_IN_BASE64}
        return in_base64 | {value: each for value, each in self._texts.items() if len(value) < MIN_ANYWHERE}

    def _all_bytes(self) -> Iterator[tuple[bytes, bytes]]:
        for value, placeholder in self._texts.items():
            if len(value) >= MIN_ANYWHERE and value not in self._plain_only:
                yield value.encode(errors="surrogatepass"), placeholder.encode()
        yield from self._binary.items()

    def _placeholder(self, value: str, source: bytes | None = None) -> str:
        """Return random characters, each of as many bytes in UTF-8 as that of the value; equal for an equal source."""
        source = value.encode(errors="surrogatepass") if source is None else source
        stream = hashlib.shake_256(hmac.digest(self._key, source, "sha256")).digest(2 * len(value))
        if value.isascii():
            return stream[: len(value)].translate(_ASCII).decode()
        numbers = (int.from_bytes(stream[index : index + 2]) for index in range(0, len(stream), 2))
        return "".join(_like(character, number) for character, number in zip(value, numbers, strict=True))


def _map_all(value: Any, change: Callable[[str], str], number: Callable[[str], str | None]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_all(inner, change, number) for key, inner in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = to_text(value)
        return (number(text) if len(text) >= MIN_ANYWHERE else None) or value
    return [_map_all(inner, change, number) for inner in value] if isinstance(value, list | tuple) else value


def to_text(number: float) -> str:
    """Return a number as it stands in JSON."""
    return json.dumps(number)


def _like(character: str, number: int) -> str:
    alphabet = next(letters for highest, letters in _ALPHABETS if ord(character) <= highest)
    return alphabet[number % len(alphabet)]


def _parts(value: str) -> Iterator[str]:
    """Yield what may occur apart from the whole value: its lines, and the strings in it if it is JSON."""
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines[:_MAX_PARTS]) if len(line) >= _MIN_LINE)
    if value.lstrip()[:1] in ("{", "["):
        try:
            yield from (leaf for leaf in texts_in(json.loads(value)) if len(leaf) >= MIN_ANYWHERE)
        except (ValueError, RecursionError):
            return


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, apart from keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)


def _overlap(text: str, value: str) -> int:
    """Return how many characters of the value's beginning, but not the whole value, are at the end of the text."""
    longest = min(len(text), len(value) - 1)
    return next((count for count in range(longest, MIN_WHOLE - 1, -1) if text.endswith(value[:count])), 0)
