"""Replaces secret values in the text of a record with placeholders of the same length.

A value is found as it is, in the spellings below (also applied twice), and in base64, at any position of a longer
encoded text. Each form comes with that of a placeholder of equal length, so that encoded text can still be decoded.
Within a record the same value always has the same placeholder; the key that placeholders are derived from is random and
never stored. Not found are parts, hashes, and other encodings of a value, and values of fewer than ``MIN_ANYWHERE``
characters inside longer text.

A text is searched once for all values together, so the time grows with its length and not with the number of values.
"""

import base64
import hashlib
import hmac
import html
import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote, unquote

from rolecall.kube.json_values import texts_in

MIN_ANYWHERE: Final = 6
"""Values, and their forms in base64, of this length are replaced wherever they occur; shorter ones match other text."""

MIN_WHOLE: Final = 3
"""Shorter values are replaced where a whole string is equal to them, but not below this length."""

CUT_MARK: Final = "…"
_ROUNDS: Final = 2
_MAX_IN_URL: Final = 16 << 10
_BREAK: Final = re.compile(r"(\\*(?:\n|\\n) *(?:\\+ )?)")
"""What YAML writes instead of a space to break a line: also in double quotes, and with the line end escaped."""

_LINE_WIDTHS: Final = (64, 76)
"""Where OpenSSL, and base64 of coreutils and MIME, break lines."""

_SEPARATORS: Final = re.compile("([/=!,() ]+)")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_JSON_ESCAPE: Final = re.compile(r"\\u(?:00([0-9a-f]{2})|([0-9a-f]{4}))")

_MAX_SHORT_BASE64: Final = 8
"""A value given in base64 is replaced as a whole text up to this length; in longer ones the value itself is found."""

_MIN_LINE: Final = 8
_MAX_PARTS: Final = 1000
_MANY_LINES: Final = 50
"""The lines of a longer value are only found unescaped: searching for each spelling of each would take seconds."""

_MAX_STARTS: Final = 100
"""Searching a text for the starts of so many forms, one by one, is faster than looking at each position."""

_HARMLESS: Final = frozenset({"default", "false", "kube-public", "kube-system", "localhost", "null", "true"})
_ALPHABETS: Final = (
    (0x7F, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
    (0x7FF, "àáâãäåæçèéêëìíîïðñòóôõöøùúûüý"),
    (0xFFFF, "あいうえおかきくけこさしすせそたちつてとなにぬねの"),
    (0x10FFFF, "😀😁😂😃😄😅😆😇😈😉😊😋😌😍😎😏"),
)
"""The characters of placeholders, by the highest code point with as many bytes in UTF-8."""

_ASCII: Final = bytes(ord(_ALPHABETS[0][1][number % len(_ALPHABETS[0][1])]) for number in range(256))


class _Forms:
    """Strings to find in one pass: each is looked up where its first characters occur."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = replacements
        self._width = min(map(len, replacements), default=0)
        lengths: dict[str, set[int]] = {}
        for form in replacements:
            lengths.setdefault(form[: self._width], set()).add(len(form))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}

    def found(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the longest form at each position where one starts, with the position."""
        width, lengths, replacements = self._width, self._lengths, self._replacements
        if len(lengths) <= _MAX_STARTS and not any(start in text for start in lengths):
            return
        for start in [at for at in range(len(text) - width + 1) if text[at : at + width] in lengths]:
            forms = (text[start : start + length] for length in lengths[text[start : start + width]])
            if form := next((form for form in forms if form in replacements), None):
                yield start, form

    def replaced(self, text: str, word: str | None = None) -> str:
        """Return a text with the replacements, or the word, in place of all forms, including overlapping ones."""
        parts: list[str] = []
        last, end = "", 0
        for start, form in self.found(text):
            rest = start + len(form) - end
            if start >= end:
                parts += [text[end:start], self._replacements[form] if word is None else word]
            elif rest > 0 and form != last:
                parts.append(self._replacements[form][-rest:] if word is None else "")
            else:
                continue
            last, end = form, start + len(form)
        return "".join((*parts, text[end:])) if parts else text


@dataclass(frozen=True, slots=True)
class _Known:
    """The forms of all values, those that may be broken at spaces, short values, and how forms start in JSON."""

    forms: _Forms
    broken: _Forms | None
    short: Mapping[str, str]
    """The values replaced where they are a whole text, but not where that is a key."""
    starts: frozenset[str]
    masked: dict[str, str] = field(default_factory=dict)
    """Texts that were searched: most are keys and values that occur many times."""

    def with_placeholders(self, text: str) -> str:
        """Return a text with placeholders in place of all forms."""
        text = self.forms.replaced(text)
        if self.broken is None or len(pieces := _BREAK.split(text)) == 1:
            return text
        joined, parts, start = self.broken.replaced(" ".join(pieces[::2])), [], 0
        for piece, gap in zip(pieces[::2], (*pieces[1::2], ""), strict=True):
            parts += [joined[start : start + len(piece)], gap]
            start += len(piece) + 1
        return "".join(parts)


class Mask:
    """The secret values of one record and their placeholders.

    ``words`` are strings that identify objects or fields: they are no secrets where they do so, even if they equal one.
    """

    def __init__(self) -> None:
        self.words: set[str] = set()
        self._key = secrets.token_bytes(32)
        self._texts: dict[str, str] = {}
        self._in_base64: dict[str, str] = {}
        self._binary: dict[bytes, bytes] = {}
        self._plain_only: set[str] = set()
        self._known: _Known | None = None
        self._sorted_values: list[str] | None = None

    def placeholders_in(self, text: str) -> list[str]:
        """Return the placeholders that a text contains."""
        return sorted({form for _, form in _Forms(dict.fromkeys(self._texts.values(), "")).found(text)})

    def add(self, value: str) -> str:
        """Record a secret value, its lines, and the strings in it if it is JSON; return its placeholder."""
        if value in self._plain_only:
            self._plain_only.remove(value)
            self._known = None
        parts = dict.fromkeys(_parts(value))
        for part in (value, *parts):
            if part not in self._texts and len(part) >= MIN_WHOLE and part.lower() not in _HARMLESS:
                self._texts[part] = self.placeholder(part)
                self._known = self._sorted_values = None
                if part != value and len(parts) > _MANY_LINES:
                    self._plain_only.add(part)
        return self._texts.get(value) or self.placeholder(value)

    def add_bytes(self, value: bytes) -> bytes:
        """Record a secret value in bytes, whether they are text or not; return its placeholder."""
        try:
            return self.add(value.decode()).encode()
        except UnicodeDecodeError:
            placeholder = self.placeholder("x" * len(value), value).encode()
            self._binary[value] = placeholder
            self._known = None
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
            self._known = self._sorted_values = None
        return encoded

    def without_cut_value(self, text: str) -> str:
        """Return a text that was cut, without the start of a secret value at its end."""
        if not text.endswith(CUT_MARK):
            return text
        if self._sorted_values is None:
            values = (*self._texts, *self._in_base64)
            self._sorted_values = sorted({form for value in values for form in (value, _in_json(value))})
        body, known = text.removesuffix(CUT_MARK), self._sorted_values
        for start in range(len(body) - MIN_WHOLE + 1):
            index = bisect_left(known, body[start:])
            if index < len(known) and known[index].startswith(body[start:]):
                return body[:start] + CUT_MARK
        return text

    def may_be_in(self, line: str) -> bool:
        """Return whether a line of JSON (not escaped to ASCII) has to be masked; fast if there are few values."""
        known = self._all()
        is_simple = not known.short and known.broken is None and len(known.starts) <= _MAX_STARTS
        return not is_simple or any(start in line for start in known.starts)

    def apply_to(self, value: Any) -> Any:
        """Return a string or a number, or its placeholder; a string may also contain values."""
        if isinstance(value, str):
            return self._all().short.get(value) or self.apply_to_key(value)
        text = json.dumps(value)
        return (self._texts.get(text) if len(text) >= MIN_ANYWHERE else None) or value

    def apply_to_key(self, text: str) -> str:
        """Return a text with placeholders in place of all values, except values that are too short for a part."""
        known = self._all()
        found = known.masked.get(text)
        if found is None:
            found = known.masked[text] = known.with_placeholders(text)
        return found

    def apply_to_path(self, path: str) -> str:
        """Return the path of a URL with placeholders in place of values, regardless of its escaped characters."""

        def masked(text: str) -> str:
            plain = unquote(text)
            changed = self.apply_to_key(plain)
            return text if changed == plain else quote(changed)

        return self._around_words(path, masked)

    def apply_to_query(self, text: str) -> str:
        """Return a name or value in a query, such as a selector, with placeholders in place of values."""
        return self._around_words(text, self.apply_to_key)

    def _around_words(self, text: str, masked: Callable[[str], str]) -> str:
        runs = groupby(_SEPARATORS.split(text), self.words.__contains__)
        return "".join("".join(run) if is_word else masked("".join(run)) for is_word, run in runs)

    def hides(self, text: str) -> bool:
        """Return whether a text is a secret value or contains one, and isn't a word."""
        is_value = text in self._texts or text in self._in_base64 or self.apply_to_key(text) != text
        return is_value and text not in self.words

    def redactor(self, word: str) -> Callable[[str], str]:
        """Return a function that replaces each currently known value in a text with the same word."""
        known = self._all()
        return lambda text: word if text in known.short else known.forms.replaced(text, word)

    def _all(self) -> "_Known":
        """Return the forms of all values that are known by now."""
        if self._known is None:
            forms: dict[str, str] = {}
            contents: list[tuple[bytes, bytes]] = []
            for value, placeholder in self._texts.items():
                if len(value) >= MIN_ANYWHERE:
                    is_plain = value in self._plain_only
                    forms |= dict.fromkeys((value,) if is_plain else _escaped(value), placeholder)
                    contents += [] if is_plain else [(value.encode(errors="surrogatepass"), placeholder.encode())]
            spaced = ((form.strip(), text) for form, text in forms.items() if " " in form.strip())
            broken = {form: text.ljust(len(form), "x")[: len(form)] for form, text in spaced}
            for content, replacement in (*contents, *self._binary.items()):
                forms |= dict(_in_base64(content, replacement))
                for form, whole in _in_broken_base64(content, replacement):
                    forms |= dict.fromkeys(_escaped(form), whole)
            short = {text: found for text, found in self._in_base64.items() if len(text) <= _MAX_SHORT_BASE64}
            short |= {value: each for value, each in self._texts.items() if len(value) < MIN_ANYWHERE}
            starts = frozenset(_in_json(form)[:MIN_ANYWHERE] for form in forms)
            self._known = _Known(_Forms(forms), _Forms(broken) if broken else None, short, starts)
        return self._known

    def placeholder(self, value: str, source: bytes | None = None) -> str:
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
    quoted = quote(text, safe="", errors="replace")
    for encoded in (quoted, quoted.replace("%20", "+")):
        yield encoded
        yield _PERCENT.sub(lambda match: match[0].lower(), encoded)


def _in_base64(value: bytes, placeholder: bytes) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value in base64, encoded once and twice, each with the same form of its placeholder."""
    for _ in range(_ROUNDS):
        pairs = [(_encoded(value), _encoded(placeholder))]
        cores = ((_core(value, offset), _core(placeholder, offset)) for offset in range(3))
        for form, replacement in (*pairs, *(pair for pair in cores if len(pair[0]) >= MIN_ANYWHERE)):
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
