"""How much memory a run may take and has taken, and what a run that took too much is told.

Ansible often does not say that memory ran out: it shows the text of an exception, and a ``MemoryError`` has none. So a
failure without a reason is judged by the size of the largest process of the run. The functions explain runs that have
failed: one that succeeded before it could be killed has succeeded.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.events import RunSummary, TaskFailure, cut

SMALLEST_DEFAULT_BYTES = 256 << 20
"""A run that is forked from a prepared process has about 60 MiB from the start; kubectl and helm need some too."""

_DEFAULT_SHARE = 0.5
_SUSPICIOUS_SHARE = 0.4
"""A process fails long before it reaches its limit: what grows asks for as much again as it has."""

_SAID = re.compile(r"MemoryError|[Oo]ut of memory|[Cc]annot allocate")
_SAYS_NOTHING = re.compile(
    r"(?:Error rendering template\.|[Ff]ailed\.|probably a bug:?|without a message|ended early|exit code -?\d+.*)\s*\Z"
)


def resolve_memory_limit(asked_bytes: int | None, container_bytes: int | None) -> int:
    """Return how much memory each process of a run may have, 0 for no limit.

    Unless it was asked for, that is half of the container's memory; without a limit of the container there is none.
    """
    if asked_bytes is not None:
        return asked_bytes
    if container_bytes is None:
        return 0
    return max(SMALLEST_DEFAULT_BYTES, int(container_bytes * _DEFAULT_SHARE))


def explain_memory_limit(summary: RunSummary, limit_bytes: int) -> RunSummary:
    """Return the summary with "out of memory" in front of a failure for which a process reached its limit."""
    if limit_bytes <= 0:
        return summary
    limit, peak = format_bytes(limit_bytes), format_bytes(summary.peak_memory_bytes)
    advice = "let the role handle less at once, or raise --run-memory-limit"
    said = [failure for failure in summary.failures if _SAID.search(failure.message)]
    if said:
        text = f"out of memory: a process of the run needed more than {limit} ({advice})"
    elif summary.peak_memory_bytes >= limit_bytes * _SUSPICIOUS_SHARE and _SAYS_NOTHING.search(summary.message):
        text = f"probably out of memory: a process of the run had {peak} and may have {limit} ({advice})"
    else:
        return summary
    return _with_prefix(summary, text, said or summary.failures[-1:])


def explain_kernel_kill(summary: RunSummary, container_bytes: int) -> RunSummary:
    """Return the summary of a run in whose time the kernel killed a process of the container for want of memory."""
    text = (
        f"probably out of memory: the {format_bytes(container_bytes)} of the container were full, and the kernel "
        "killed a process (lower --max-concurrent-runs, or raise the memory limit of the container)"
    )
    return _with_prefix(summary, text, summary.failures[-1:])


def explain_kill(summary: RunSummary, why: object) -> RunSummary:
    """Return the summary of a run that was killed: what it reports itself is a consequence, except the task."""
    task = summary.failures[-1].task if summary.failures else ""
    return replace(summary, failures=(TaskFailure(task, "", cut(str(why))),))


def _with_prefix(summary: RunSummary, text: str, changed: Sequence[TaskFailure]) -> RunSummary:
    failures = (
        replace(each, message=cut(f"{text}: {each.message}")) if each in changed else each for each in summary.failures
    )
    return replace(summary, failures=tuple(failures))
