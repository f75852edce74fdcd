"""The song of a Hikawa: its words, its judgement, and the next step of the state machine.

Word n is a function of the seed and of n alone, so a run that is repeated after a crash says the same word again. The
next step is a pure function of the Hikawa, of the words that exist and of the time; it is taken when due and never
sooner. A word whose creation no earlier run has reported counts as said just now, because it was said at that time or
before. The tasks of the role carry the step out.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SAID_AT = "zundokokiyoshi.kaitoy.github.com/said-at-millis"
END_OF_SONG = ["Zun", "Zun", "Zun", "Zun", "Doko"]

Object = dict[str, Any]


class FilterModule:
    """What Ansible asks for the filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give the filters by the names that the tasks use."""
        return {"hikawa_word": word, "hikawa_is_over": is_over, "hikawa_plan": plan}


def word(number: int, seed: str) -> str:
    """Give the word of that number, counted from 1, in the song of that seed."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return "Doko" if digest[0] % 2 else "Zun"


def is_over(words: list[str]) -> bool:
    """Say whether the last five words are the right ones."""
    return words[-5:] == END_OF_SONG


def plan(zundokos: Iterable[Object], hikawa: Object, seed: str, now_millis: int) -> Object:
    """Say what one run does, given all Zundokos of the namespace, the whole Hikawa, and the time.

    The result has `say` (`name` and `word`, or none), `spec` (what the operator changes in the spec, or nothing),
    `is_kiyoshi_due`, `blocked_by` (the name of a Zundoko of somebody else that is in the way, or none),
    `said_at_millis` (by when the latest word had been said), `is_waiting` (whether time has to pass for the next step)
    and `num_zundokos_said`.
    """
    zundokos = list(zundokos)
    own = _own_words(zundokos, hikawa)
    said_at = _said_at(own.values(), hikawa, now_millis)
    is_due = now_millis >= said_at + hikawa["spec"]["intervalMillis"]
    target = max([hikawa["spec"].get("numZundokos", 0), *own])
    number = _first_missing(own, target)
    name = None if number is None else f"{hikawa['metadata']['name']}-zundoko-{number:03d}"
    occupant = next((zundoko for zundoko in zundokos if zundoko["metadata"]["name"] == name), None)
    is_said_now = number is not None and is_due and occupant is None
    words = {each: zundoko["spec"]["say"] for each, zundoko in own.items()}
    if number is not None and is_said_now:
        words[number] = word(number, seed)
    change = _spec_change(words, target, hikawa)
    says_kiyoshi = number is None and hikawa["spec"].get("sayKiyoshi", False)
    return {
        "say": {"name": name, "word": words[number]} if number is not None and is_said_now else None,
        "spec": change,
        "is_kiyoshi_due": says_kiyoshi and is_due,
        "blocked_by": name if occupant is not None and not _is_leaving(occupant) else None,
        "said_at_millis": said_at,
        "is_waiting": occupant is None and not (says_kiyoshi and is_due),
        "num_zundokos_said": len(words),
    }


def _own_words(zundokos: Iterable[Object], hikawa: Object) -> dict[int, Object]:
    pattern = re.compile(re.escape(hikawa["metadata"]["name"]) + r"-zundoko-(\d{3,})")
    matches = ((pattern.fullmatch(zundoko["metadata"]["name"]), zundoko) for zundoko in zundokos)
    return {
        int(match[1]): zundoko
        for match, zundoko in matches
        if match and _is_owned(zundoko, hikawa) and not _is_leaving(zundoko)
    }


def _is_owned(zundoko: Object, hikawa: Object) -> bool:
    references = zundoko["metadata"].get("ownerReferences") or []
    return any(each.get("controller") and each["uid"] == hikawa["metadata"]["uid"] for each in references)


def _is_leaving(zundoko: Object) -> bool:
    return "deletionTimestamp" in zundoko["metadata"]


def _said_at(own: Iterable[Object], hikawa: Object, now_millis: int) -> int:
    reported = hikawa.get("status", {}).get("lastSaidAtMillis")
    if reported is None:
        return now_millis
    reported = min(reported, now_millis)
    times = (int((zundoko["metadata"].get("annotations") or {}).get(SAID_AT, 0)) for zundoko in own)
    return now_millis if any(reported < time <= now_millis for time in times) else reported


def _first_missing(own: Mapping[int, Object], target: int) -> int | None:
    number = 1
    while number in own:
        number += 1
    return number if number <= target else None


def _spec_change(words: Mapping[int, str], target: int, hikawa: Object) -> Object:
    """Say what the operator changes in the spec once the words are said; nothing while some are missing."""
    if len(words) < target or hikawa["spec"].get("sayKiyoshi", False):
        return {}
    if is_over([words[number] for number in sorted(words)]):
        return {"sayKiyoshi": True}
    return {"numZundokos": target + 1}
