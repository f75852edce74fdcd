"""The song of a Hikawa: its words, when it has ended, and the next step of the state machine.

Word n depends only on the seed and on n, so a run that is repeated after a crash says the same word again. The next
step is a pure function of the Hikawa, of the existing words and of the time; it is never taken before it is due. A word
whose creation no earlier run has reported counts as said just now, because it was said now or earlier. The tasks of the
role carry out the step.

Two values in the status keep the interval between words:

- ``sayingMillis`` is the minimum time that a word of this Hikawa has taken from reading the clock to the API server's
  response. Every word takes at least this time, so a run can read the clock that much earlier. The fewer words the
  value is based on, the less of it is used.
- ``leadMillis`` is how long before a step is due its run is requested, because a run needs time until it reads the
  clock. It decreases immediately after a run that was too early and increases slowly while runs are late, so that it
  follows the fastest runs: a run that is too early says nothing and needs another run. ``wasEarly`` marks that one.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SAID_AT = "zundokokiyoshi.kaitoy.github.com/said-at-millis"
END_OF_SONG = ["Zun", "Zun", "Zun", "Zun", "Doko"]
MARGIN_MILLIS = 8  # runs should be late by this time rather than early

Object = dict[str, Any]


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"hikawa_word": word, "hikawa_is_over": is_over, "hikawa_plan": plan, "hikawa_report": report}


def word(number: int, seed: str) -> str:
    """Return the word with this number, counted from 1, in the song with this seed."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return "Doko" if digest[0] % 2 else "Zun"


def is_over(words: list[str]) -> bool:
    """Return whether the last five words end the song."""
    return words[-5:] == END_OF_SONG


def plan(zundokos: Iterable[Object], hikawa: Object, seed: str, now_millis: int) -> Object:
    """Return what one run does, given all Zundokos of the namespace, the whole Hikawa, and the time.

    The result has ``looked_at_millis`` (the time), ``say`` (``name`` and ``word``, or None), ``spec`` (the change of
    the spec, or empty), ``is_kiyoshi_due``, ``blocked_by`` (the name of a Zundoko with another owner that is in the
    way, or None), ``due_at_millis`` (when the next step is due), ``is_waiting`` (whether the next step is not due yet)
    and ``num_zundokos_said``.
    """
    zundokos = list(zundokos)
    own = _own_words(zundokos, hikawa)
    due_at = _said_at(own.values(), hikawa, now_millis) + hikawa["spec"]["intervalMillis"] - _allowance_before(hikawa)
    is_due = now_millis >= due_at
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
        "looked_at_millis": now_millis,
        "say": {"name": name, "word": words[number]} if number is not None and is_said_now else None,
        "spec": change,
        "is_kiyoshi_due": says_kiyoshi and is_due,
        "blocked_by": name if occupant is not None and not _is_leaving(occupant) else None,
        "due_at_millis": due_at,
        "is_waiting": occupant is None and not (says_kiyoshi and is_due),
        "num_zundokos_said": len(words),
    }


def report(step: Object, hikawa: Object, now_millis: int) -> Object:
    """Return the progress of the song after a run, given its plan, the Hikawa before it, and the time after its word.

    The result has ``num_zundokos_said``, ``kiyoshied``, ``last_said_at_millis`` and ``timing``, which are for the
    status, and ``next_run_at_millis``.
    """
    timing, interval = dict(_timing(hikawa)), hikawa["spec"]["intervalMillis"]
    late = step["looked_at_millis"] - step["due_at_millis"]
    if step["say"] or step["is_kiyoshi_due"] or -timing.get("leadMillis", 0) <= late < 0:
        timing |= {"leadMillis": _lead(late, hikawa), "wasEarly": late < 0}
    if step["say"]:
        saying = max(0, now_millis - step["looked_at_millis"])
        timing["sayingMillis"] = min(saying, timing.get("sayingMillis", saying))
    allowance = _allowance(timing, step["num_zundokos_said"], interval)
    due_at = now_millis + interval - allowance if step["say"] else step["due_at_millis"]
    return {
        "num_zundokos_said": step["num_zundokos_said"],
        "kiyoshied": step["is_kiyoshi_due"],
        "last_said_at_millis": due_at - interval + allowance,
        "timing": timing,
        "next_run_at_millis": due_at - timing.get("leadMillis", 0),
    }


def _timing(hikawa: Object) -> Mapping[str, Any]:
    timing: Mapping[str, Any] = hikawa.get("status", {}).get("timing", {})
    return timing


def _allowance_before(hikawa: Object) -> int:
    said = hikawa.get("status", {}).get("numZundokosSaid", 0)
    return _allowance(_timing(hikawa), said, hikawa["spec"]["intervalMillis"])


def _allowance(timing: Mapping[str, Any], said: int, interval_millis: int) -> int:
    """Return how much earlier than an interval after the last word a run may read the clock."""
    saying: int = timing.get("sayingMillis", 0)
    return min(saying * said // (said + 1), interval_millis // 4)


def _lead(late_millis: int, hikawa: Object) -> int:
    """Return how long before the next step its run is requested, given how late (or early) this run was."""
    lead, interval = _timing(hikawa).get("leadMillis"), hikawa["spec"]["intervalMillis"]
    if lead is None:
        return min(late_millis, interval) * 3 // 4
    excess = min(late_millis - MARGIN_MILLIS, interval)
    if excess > 0:  # after few words the lead is only a guess; the run after an early one is always late
        excess = (
            0 if _timing(hikawa).get("wasEarly") else excess // min(hikawa["status"].get("numZundokosSaid", 0) + 2, 16)
        )
    return min(max(0, lead + excess), interval)


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
    just_now = now_millis + _allowance_before(hikawa)  # so that the next step is a whole interval from now
    reported = hikawa.get("status", {}).get("lastSaidAtMillis")
    if reported is None:
        return just_now
    reported = min(reported, just_now)
    times = (int((zundoko["metadata"].get("annotations") or {}).get(SAID_AT, 0)) for zundoko in own)
    return just_now if any(reported < time <= now_millis for time in times) else reported


def _first_missing(own: Mapping[int, Object], target: int) -> int | None:
    number = 1
    while number in own:
        number += 1
    return number if number <= target else None


def _spec_change(words: Mapping[int, str], target: int, hikawa: Object) -> Object:
    """Return the change of the spec after all words are said; empty while words are missing."""
    if len(words) < target or hikawa["spec"].get("sayKiyoshi", False):
        return {}
    if is_over([words[number] for number in sorted(words)]):
        return {"sayKiyoshi": True}
    return {"numZundokos": target + 1}
