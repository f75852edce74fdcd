"""The results of a page's commands: their exit codes, and whether their output matches the page.

The comparison ignores ages, durations, addresses, paths, and generated names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.guides import Guide, Step

ELLIPSIS = "…"
MOST_LINES = 60
MASKS = (
    (r"https://127\.0\.0\.1:\d+", "ADDRESS"),
    (r"/\S+/kubeconfig", "KUBECONFIG"),
    (r"\b(hello|nginx)-[0-9a-z]+-[0-9a-z]{5}\b", r"\1-POD"),
    (r"\(process \d+\)", "PROCESS"),
    (r"\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b", "AGE"),
    (r"\b\d+[mhd]\b", "AGE"),
    (r"\bsince \d\d:\d\d\b", "since CLOCK"),
    (r"\b(numZundokos(?:Said)?)=\d+", r"\1=WORDS"),
    (r": \d+ MB above \S+", ": SIZE above BASE"),
    (r"\bconfirm-prune=[0-9a-f]{16}\b", "confirm-prune=DIGEST"),
    (r"\*{3,}$", "***"),
    (r"\s+", " "),
)


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was done: the exit code, and the lines that were printed, without what differs from time to time."""

    step: Step
    code: int
    printed: tuple[str, ...]

    @property
    def unseen(self) -> list[str]:
        """The lines that the page shows and that were not printed."""
        return [line for line in self.step.shown if line != ELLIPSIS and masked(line) not in self.printed]

    @property
    def is_as_shown(self) -> bool:
        """Return whether its exit code and output match the page."""
        return bool(self.code) == self.step.is_refused and not self.unseen


def done(step: Step, code: int, printed: str) -> Done:
    """Return the outcome of a step with this exit code and output."""
    return Done(step, code, tuple(masked(line) for line in printed.splitlines()))


def masked(line: str) -> str:
    """Return a line without what differs from time to time."""
    for pattern, word in MASKS:
        line = re.sub(pattern, word, line)
    return line.strip()


def check(guide: Guide, all_done: Sequence[Done]) -> None:
    """Fail unless every command of a page was done in the page's order, and ended and printed as the page says."""
    others = [each for each in all_done if not each.is_as_shown]
    assert not others, "\n\n".join(told(each) for each in others)
    missing = [step.command for step in guide.steps if step not in [each.step for each in all_done]]
    assert [each.step for each in all_done] == guide.steps, f"not done, or in another order: {missing}"


def told(each: Done) -> str:
    """Return for people how a step ended that is not as its page says."""
    printed = "\n".join(each.printed[-MOST_LINES:])
    return f"{each.step.command}\n  ended with {each.code}; not printed: {each.unseen}; printed:\n{printed}"
