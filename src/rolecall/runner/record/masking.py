"""Replaces secret values in the text of a record with placeholders of the same length.

A value is found as it is, in the spellings below (also applied twice), and in base64, at any position of a longer
encoded text. Each form comes with that of a placeholder of equal length, so that encoded text can still be decoded.
Within a record the same value always has the same placeholder; the key that placeholders are derived from is random and
never stored. Not found are parts, hashes, and other encodings of a value, and values of fewer than ``MIN_ANYWHERE``
characters inside longer text.
"""

import base64
import hashlib
import hmac
import html
import json
import re
import secrets
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

MIN_ANYWHERE: Final = 6
"""Values of this length are replaced wherever they occur."""

MIN_WHOLE: Final = 3
"""Shorter values are replaced where a whole string is equal to them, but not below this length."""

CUT_MARK: Final = "…"
_NOTHING: Final[AbstractSet[str]] = frozenset()
_MIN_FORM: Final = 6
"""Shorter forms in base64 would match unrelated text."""

_ROUNDS: Final = 2
_MAX_WORDS: Final = 200
_MAX_IN_URL: Final = 16 << 10
_BREAK: Final = r"( |\\*(?:\n|\\n) *(?:\\+ )?)"
"""A space, or what YAML writes instead to break a line: also in double quotes, and with the line end escaped."""

_LINE_WIDTHS: Final = (64, 76)
"""Where OpenSSL, and base64 of coreutils and MIME, break lines."""

_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_JSON_ESCAPE: Final = re.compile(r"\\u(?:00([0-9a-f]{2})|([0-9a-f]{4}))")

_MAX_SHORT_BASE64: Final = 8
"""A value given in base64 is replaced as a whole text up to this length; in longer ones the value itself is found."""

_MIN_LINE: Final = 8
_MAX_PARTS: Final = 1000
_MANY_LINES: Final = 50
"""The lines of a longer value are only found unescaped: searching for each spelling of each would take seconds."""

_HARMLESS: Final = frozenset({"default", "false", "kube-public", "kube-system", "localhost", "null", "true"})
_ALPHABETS: Final = (
    (0x7F, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
    (0x7FF, "àáâãäåæçèéêëìíîïðñòóôõöøùúûüý"),
    (0xFFFF, "あいうえおかきくけこさしすせそたちつてとなにぬねの"),
    (0x10FFFF, "😀😁😂😃😄😅😆😇😈😉😊😋😌😍😎😏"),
)
"""The characters of placeholders, by the highest code point with as many bytes in UTF-8."""

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
        """The placeholders that the text may contain."""
        return sorted(self._texts.values())

    def add(self, value: str) -> str:
        """Record a secret value, its lines, and the strings in it if it is JSON; return its placeholder."""
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
        """Return the placeholder of a value that is only replaced in this place."""
        return self._placeholder(value)

    def add_bytes(self, value: bytes) -> bytes:
        """Record a secret value in bytes, whether they are text or not; return its placeholder."""
        try:
            return self.add(value.decode()).encode()
        except UnicodeDecodeError:
            placeholder = self._placeholder("x" * len(value), value).encode()
            self._binary[value] = placeholder
            self._known_forms.clear()
            return placeholder

    def add_base64(self, text: str) -> str:
        """Record a secret value given in base64; return its placeholder, also in base64."""
        value = decode_base64("".join(text.split()))
        if value is None:
            return self.add(text)
        if any(map(str.isspace, text)):
            self.add(text)
        encoded = _encoded(self.add_bytes(value))
        if value in self._binary or value.decode(errors="replace") in self._texts:
            self._in_base64[text] = encoded
        return encoded

    def without_cut_value(self, text: str) -> str:
        """Return a text that was cut, without the start of a secret value at its end."""
        if not text.endswith(CUT_MARK):
            return text
        body = text.removesuffix(CUT_MARK)
        values = (*self._texts, *self._in_base64)
        lengths = (_overlap(body, form) for value in values for form in (value, _in_json(value)))
        return body[: len(body) - max(lengths, default=0)] + CUT_MARK

    def apply(self, text: str) -> str:
        """Return lines of JSON (not escaped to ASCII, without spaces) with placeholders in place of all values.

        This is fast, and may break a line: a value may start with the end of an escape sequence. See ``apply_to``.
        """
        text = self._replaced(text, _in_json)
        short = {_in_json(value): placeholder for value, placeholder in self._short.items()}
        if not short:
            return text
        pattern = re.compile(f'"({"|".join(map(re.escape, short))})"(?!:)')
        return pattern.sub(lambda match: f'"{short[match[1]]}"', text)

    def apply_to(self, value: Any) -> Any:
        """Return a JSON value with placeholders in place of all values, in each string, key, and number of it."""
        short = self._short

        def changed(scalar: str | float) -> Any:
            if isinstance(scalar, str):
                return short.get(scalar) or self._replaced(scalar, str)
            text = json.dumps(scalar)
            return (self._texts.get(text) if len(text) >= MIN_ANYWHERE else None) or scalar

        return map_scalars(value, changed, with_keys=True)

    def apply_to_path(self, path: str) -> str:
        """Return the path of a URL with placeholders in place of values, regardless of its escaped characters."""
        plain = unquote(path)
        masked = self._replaced(plain, str)
        return path if masked == plain else quote(masked)

    def hides(self, text: str) -> bool:
        """Return whether a text is a secret value or contains one."""
        return text in self._texts or text in self._in_base64 or self._replaced(text, str) != text

    def redactor(self, word: str) -> Callable[[str], str]:
        """Return a function that replaces each currently known value in a text with the same word."""
        forms = sorted(self._forms(str), key=len, reverse=True)
        short = self._short

        def redact(text: str) -> str:
            if text in short:
                return word
            for form in forms:
                if form in text:
                    text = text.replace(form, word)
            return text

        return redact

    def _replaced(self, text: str, escape: Callable[[str], str]) -> str:
        """Replace the longest forms first: one may contain another. ``escape`` was applied to all of the text."""
        for form, placeholder in self._forms(escape).items():
            if form in text:
                text = text.replace(form, placeholder)
        for value, placeholder in self._texts.items():
            if " " in value and len(value) >= MIN_ANYWHERE and value not in self._plain_only:
                text = _without_broken(text, value, placeholder, escape)
        return text

    def _forms(self, escape: Callable[[str], str]) -> dict[str, str]:
        """Return the forms of all values, the longest first, with their replacements."""
        found = self._known_forms.get(escape)
        if found is None:
            forms: dict[str, str] = {}
            contents: list[tuple[bytes, bytes]] = []
            for value, placeholder in self._texts.items():
                if len(value) >= MIN_ANYWHERE:
                    is_plain = value in self._plain_only
                    forms |= dict.fromkeys(map(escape, (value,) if is_plain else _escaped(value)), placeholder)
                    contents += [] if is_plain else [(value.encode(errors="surrogatepass"), placeholder.encode())]
            for content, replacement in (*contents, *self._binary.items()):
                forms |= dict(_in_base64(content, replacement))
                for form, whole in _in_broken_base64(content, replacement):
                    forms |= dict.fromkeys(map(escape, _escaped(form)), whole)
            found = {form: forms[form] for form in sorted(forms, key=len, reverse=True)}
            self._known_forms[escape] = found
        return found

    @property
    def _short(self) -> dict[str, str]:
        """The values that are replaced where they are a whole text, but not where that is a key."""
        encoded = {text: found for text, found in self._in_base64.items() if len(text) <= _MAX_SHORT_BASE64}
        return encoded | {value: each for value, each in self._texts.items() if len(value) < MIN_ANYWHERE}

    def _placeholder(self, value: str, source: bytes | None = None) -> str:
        """Return random characters, each of as many bytes in UTF-8 as that of the value; equal for an equal source."""
        source = value.encode(errors="surrogatepass") if source is None else source
        stream = hashlib.shake_256(hmac.digest(self._key, source, "sha256")).digest(2 * len(value))
        if value.isascii():
            return stream[: len(value)].translate(_ASCII).decode()
        found = []
        for index, character in enumerate(value):
            alphabet = next(letters for highest, letters in _ALPHABETS if ord(character) <= highest)
            found.append(alphabet[int.from_bytes(stream[2 * index : 2 * index + 2]) % len(alphabet)])
        return "".join(found)


def map_scalars(
    value: Any, change: Callable[[str | float], Any], *, kept: AbstractSet[str] = _NOTHING, with_keys: bool = False
) -> Any:
    """Return a JSON value with each string and number in it changed, except below the keys ``kept``."""

    def inside(inner: Any) -> Any:
        return map_scalars(inner, change, kept=kept, with_keys=with_keys)

    if isinstance(value, dict):
        values = {key: inner if key in kept else inside(inner) for key, inner in value.items()}
        return {change(key): inner for key, inner in values.items()} if with_keys else values
    if isinstance(value, list | tuple):
        return [inside(inner) for inner in value]
    return change(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else value


def texts_in(value: Any) -> Iterator[str]:
    """Yield each string in a JSON value, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)


def decode_base64(text: object) -> bytes | None:
    """Return the content of base64, such as a value below ``data`` of a Secret, or None if it isn't base64."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except ValueError:
        return None


def _parts(value: str) -> Iterator[str]:
    """Yield the parts of a value that may occur separately: its lines, and the strings in it if it is JSON."""
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines[:_MAX_PARTS]) if len(line) >= _MIN_LINE)
    if value.lstrip()[:1] in ("{", "["):
        try:
            yield from (leaf for leaf in texts_in(json.loads(value)) if len(leaf) >= MIN_ANYWHERE)
        except (ValueError, RecursionError):
            return


def _overlap(text: str, value: str) -> int:
    """Return how many characters at the start of the value, but not the whole value, are at the end of the text."""
    longest = min(len(text), len(value) - 1)
    return next((count for count in range(longest, MIN_WHOLE - 1, -1) if text.endswith(value[:count])), 0)


def _in_json(text: str) -> str:
    """Return a text as it is between the quotes of a JSON string that isn't escaped to ASCII."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(value: str) -> set[str]:
    """Return the value and its spellings inside other text, escaped up to twice."""
    found = last = {value}
    for _ in range(_ROUNDS):
        last = {spelling for text in last for spelling in _once_escaped(text)} - found
        found = found | last
    return found


def _once_escaped(text: str) -> Iterator[str]:
    plain, ascii_only = _in_json(text), json.dumps(text)[1:-1]
    yield plain
    yield plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")  # as Go writes JSON
    yield ascii_only
    yield _JSON_ESCAPE.sub(lambda match: f"\\x{match[1].upper()}" if match[1] else f"\\u{match[2].upper()}", ascii_only)
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


def _in_base64(value: bytes, placeholder: bytes) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value in base64, encoded once and twice, each with the same form of its placeholder."""
    for _ in range(_ROUNDS):
        pairs = [(_encoded(value), _encoded(placeholder))]
        cores = ((_core(value, offset), _core(placeholder, offset)) for offset in range(3))
        for form, replacement in (*pairs, *(pair for pair in cores if len(pair[0]) >= _MIN_FORM)):
            yield form, replacement
            yield form.replace("+", "-").replace("/", "_"), replacement
        value, placeholder = base64.b64encode(value), base64.b64encode(placeholder)


def _in_broken_base64(value: bytes, placeholder: bytes) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value in base64 that programs break into lines, each with its placeholder in one line."""
    pairs = ((_encoded(value), _encoded(placeholder)), (_core(value, 0), _core(placeholder, 0)))
    for width in _LINE_WIDTHS:
        if len(pairs[1][0]) > width:
            for form, replacement in pairs:
                yield "\n".join(form[start : start + width] for start in range(0, len(form), width)), replacement


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _core(value: bytes, offset: int) -> str:
    """Return the characters of base64 that only depend on the value, given so many bytes (modulo 3) before it."""
    encoded = _encoded(bytes(offset) + value).rstrip("=")
    rest = (offset + len(value)) % 3
    return encoded[offset + 1 if offset else 0 : len(encoded) - (1 if rest else 0)]


def _without_broken(text: str, value: str, placeholder: str, escape: Callable[[str], str]) -> str:
    """Replace a value of one line that is broken at its spaces; ``escape`` was applied to all of the text."""
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
