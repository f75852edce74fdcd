"""Converts the keys of a spec to Ansible's naming style: ``serviceAccount`` becomes ``service_account``.

The rules, including odd results, are the Go runner's, because roles were written against them. One thing differs: Go
isolates its special words in a random order, here the order is fixed (HTTP, URL, IP). Nothing here raises; a blank key
stays as it is.
"""

import re
from typing import Any

_TWO_DIGIT_GROUPS = re.compile(r"([A-Za-z])([0-9]+)([A-Za-z][0-9]+)")
_SPECIAL_WORDS = ("HTTP", "URL", "IP")
_SPECIAL_NAMES = frozenset(word.lower() for word in _SPECIAL_WORDS)
_SEPARATORS = " _-"


def snake_case(key: str) -> str:
    """Return a key in snake case; a leading capital becomes a leading underscore."""
    text = _TWO_DIGIT_GROUPS.sub(r"\1 \2 \3", key).strip(" ")
    if not text:
        return key
    leads_with_capital = "A" <= text[0] <= "Z"
    for word in _SPECIAL_WORDS:
        text = _isolate(text, word)
    words = _words(text)
    prefix = "_" if leads_with_capital and words[0] not in _SPECIAL_NAMES else ""
    return prefix + "_".join(words)


def snake_case_keys(value: Any) -> Any:
    """Return a copy of a JSON value in which every key, at any depth, is in snake case.

    If several keys become the same name, the last one in alphabetical order wins.
    """
    if isinstance(value, dict):
        return {snake_case(key): snake_case_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [snake_case_keys(item) for item in value]
    return value


def _isolate(text: str, word: str) -> str:
    """Put underscores around the first occurrence of a special word; a plural s counts as a part of it."""
    before, found, after = text.partition(word)
    if not found:
        return text
    if after.startswith("s"):
        word, after = f"{word}S", after[1:]
    left = "_" if before or not after else ""
    right = "_" if after else ""
    return f"{before}{left}{word}{right}{after}"


def _words(text: str) -> list[str]:
    """Split at separators and where the case changes; the last capital of an acronym starts the next word."""
    words = []
    word = ""
    for character, following in zip(text, f"{text[1:]} ", strict=True):
        if word and _case_changes(character, following):
            words.append(word if character.isupper() else word + character)
            word = character if character.isupper() else ""
        elif character in _SEPARATORS:
            words.append(word)
            word = ""
        else:
            word += character
    return [part.lower() for part in [*words, word]]


def _case_changes(character: str, following: str) -> bool:
    pair = character + following
    return pair.isascii() and pair.isalpha() and character.isupper() != following.isupper()
