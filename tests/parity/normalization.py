"""Removes legitimate differences between two runs of the same content.

A `Normalizer` replaces texts that belong to one run (its directory, its name, its namespace), and everything that looks
like a time, a process id, a random name or an address; the values of keys that are times or ids by their meaning are
replaced whatever they are. What is replaced stays visible as a placeholder, so that a missing value is a difference.
"""

import json
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from tests import CORE

VARIES = "<varies>"

VARYING_KEYS = frozenset(
    {
        *("created", "pid", "child_pid", "uuid", "start", "end", "delta", "duration", "runner_ident", "ansible_job_id"),
        "duration_seconds",
        *("atime", "mtime", "ctime", "inode", "creationTimestamp", "resourceVersion", "lastTransitionTime", "elapsed"),
        *("lastTimestamp", "firstTimestamp", "eventTime", "clusterIP", "clusterIPs", "nodeName", "hostIP", "podIP"),
    }
)
"""Keys whose values are times, ids or random regardless of what the run did."""

VARYING_FACTS = re.compile(
    r"^(ansible_)?(date_time|uptime_seconds|loadavg|memfree_mb|memory_mb|swapfree_mb|mounts|devices|"
    r"ssh_host_key_.*|device_links|lvm|interfaces|all_ipv[46]_addresses|default_ipv[46]|veth.*|eth\d.*|docker\d.*)$"
)

UNORDERED_FACTS = re.compile(r"^(ansible_)?virtualization_tech_(guest|host)$")
"""Facts that are sets: their order follows from the seed of the interpreter's hashes."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        (r"ansible-tmp-[\d.]+-\d+-\d+", "<task directory>"),
        (r"ansible-local-\w+", "<local directory>"),
        (r"/tmp/(?:ansible_[\w.]+_payload_\w+|tmp\w{8})", "<temporary>"),  # noqa: S108 - only recognised
        (r"ansible\.\w{8}\b|^\.\w{8}$|made\.\w{8}\.dir|(?<=/)tmp\w{8}\b", "<temporary>"),
        (r"\bj?\d{9,}\.\d+\b", "<job or time>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d+:\d\d:\d\d\.\d{6}\b", "<duration>"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])", "<uuid>"),
        (r"\bsimulated://[0-9a-f]{64}\b", "<container>"),
        (r"\b0x[0-9a-f]{6,}\b", "<address>"),
        (r"(127\.0\.0\.1|localhost):\d{4,5}\b", r"\1:<port>"),
        (r"(?s)(deserialization failed: .*?): (?:File |[^|]* \| [~^]+).*?(\w+(?:: [^|]*)?)$", r"\1: <traceback> \2"),
        (r"(?s)Traceback \(most recent call last\):(?:(?!Traceback|\w+Error).)*KeyboardInterrupt", "<traceback>"),
        (r'"(child_pid|inode|resourceVersion|duration|elapsed)": "?[\d.]+"?', r'"\1": <number>'),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        (r"\bnode-\d\b", "<node>"),
        (r"kube-api-access-\w{5}", "kube-api-access-<random>"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<time>"),
        (r"pid=\d+|pid \d+|PID \d+", "<pid>"),
        (r"Paused for [\d.]+ seconds", "Paused for <seconds>"),
    )
)

_TRACEBACKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"Traceback \(most recent call last\):(?:\\n|\n)(?:  (?:(?!\\n).)*(?:\\n|\n))+"),
        "<traceback> ",
    ),
    (re.compile(r"(See stdout/stderr for the exact error: )(?:[^|]* \| )+"), r"\1<traceback> "),
    (re.compile(r"Interrupted at <frame at <address>.*? called from <frame at <address>"), "Interrupted at <frame>"),
)
"""The way to an error. Before 2.19, ansible-core shows it in results, with the frames of its wrapper of modules.

A module of a warm run has no wrapper, and its source is at hand.
"""


class Normalizer:
    """Replaces what belongs to one run; `own` maps texts of this run to placeholders, longer texts first."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = sorted(own.items(), key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """Return the text without values that differ between runs."""
        if CORE < (2, 19) and text.startswith("[DEPRECATION WARNING]"):
            text = text.replace("-\n", "-")  # Ansible wraps lines within a path, too
        for mine, placeholder in self._own:
            text = text.replace(mine, placeholder)
        for pattern, placeholder in (*_PATTERNS, *(_TRACEBACKS if CORE < (2, 19) else ())):
            text = pattern.sub(placeholder, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value, normalised at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._of_key(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _of_key(self, key: str, item: Any) -> Any:
        is_empty = item is None or item in ("", [], {})
        if not is_empty and (key in VARYING_KEYS or VARYING_FACTS.match(key)):
            return VARIES
        if UNORDERED_FACTS.match(key) and isinstance(item, list):
            return sorted(item)
        return self.value(item)


def differences(left: Any, right: Any, place: str = "") -> list[str]:
    """Return one line for each place where two JSON values differ; none when they are equal."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [*left, *(key for key in right if key not in left)]
        missing = "<missing>"
        return [
            line
            for key in keys
            for line in differences(left.get(key, missing), right.get(key, missing), f"{place}.{key}")
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line
            for number, (one, other) in enumerate(zip(left, right, strict=True))
            for line in differences(one, other, f"{place}[{number}]")
        ]
    if isinstance(left, list) and isinstance(right, list):
        return _lengths_differ(left, right, place)
    return [] if left == right else [f"{place}: {_shown(left)} | {_shown(right)}"]


def _lengths_differ(left: list[Any], right: list[Any], place: str) -> list[str]:
    """Return the differences between two lists, as the shortest edit from one to the other."""
    texts = [[json.dumps(item, sort_keys=True, default=str) for item in items] for items in (left, right)]
    steps = SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes()
    found = [f"{place}: {len(left)} items | {len(right)} items"]
    for kind, start, end, other_start, other_end in steps:
        if kind == "replace" and end - start == other_end - other_start:
            pairs = zip(range(start, end), range(other_start, other_end), strict=True)
            found += [
                line for one, other in pairs for line in differences(left[one], right[other], f"{place}[{one}|{other}]")
            ]
        elif kind != "equal":
            found += [f"{place}[{number}] is only left: {_shown(left[number])}" for number in range(start, end)]
            found += [
                f"{place}[{number}] is only right: {_shown(right[number])}" for number in range(other_start, other_end)
            ]
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 1500 else f"{text[:1000]} … {text[-400:]}"
