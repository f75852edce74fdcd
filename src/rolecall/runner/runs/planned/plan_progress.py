"""How far a planned run has come, as the process of ansible-playbook and each of its workers know it.

Workers are forked, so what changes here later stays in the process that changes it; what all have to know is in the
journal.
"""

from typing import Any, NoReturn

from rolecall.runner.runs.planned.classification import Verdict
from rolecall.runner.runs.planned.journal import EndedAt, Journal, WithheldTask
from rolecall.runner.runs.planned.unknown_result import PlanEnded


class PlanProgress:
    """The current task of this process, the tasks that have begun, and the end of the plan."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.ended: EndedAt | None = None
        """Where this process has ended the plan."""
        self.withheld_now: WithheldTask | None = None
        """The current task of this process, if it or an item of its loop was not run."""
        self._task: Any = None
        self._host = ""
        self._begun: set[str] = set()

    def begin(self, host: Any, task: Any) -> None:
        """Note that a task begins."""
        self.withheld_now = None
        self._begun.add(task._uuid)  # noqa: SLF001 - what events call task_uuid
        self.enter(host, task)

    def enter(self, host: Any, task: Any) -> None:
        """Note that a task is looked at, which may not begin."""
        self._task, self._host = task, host.get_name()

    def withhold(self, action: str, verdict: Verdict) -> WithheldTask:
        """Note that the current task, or an action within it, was not run."""
        withheld = self.withheld(action, verdict)
        self.journal.withhold(withheld)
        return withheld

    def skip(self, withheld: WithheldTask) -> None:
        """Note that the current task was not run."""
        self.withheld_now = withheld
        self.journal.withhold(withheld)

    def withheld(self, action: str, verdict: Verdict) -> WithheldTask:
        """Return what to note when the current task has come to the action."""
        ident, name, place = self._place()
        return WithheldTask(ident, name, place, action, verdict.reason, self._host, may_run=not verdict.is_final)

    def end_by_use(self, used: WithheldTask) -> NoReturn:
        """End the plan at the current task, which uses the result of a withheld one. Raises PlanEnded."""
        self.end(used, f"uses the result of {used.task!r}")

    def end(self, used: WithheldTask, how: str) -> NoReturn:
        """End the plan at the current task; see ``EndedAt``. Raises PlanEnded."""
        ident, name, place = self._place()
        self.ended = EndedAt(ident, name, place, len(self._begun | {ident}), used, how)
        self.journal.end(self.ended)
        raise PlanEnded(self.ended.message)

    def _place(self) -> tuple[str, str, str]:
        """Return the id of the current task, its name as events have it, and its place."""
        if self._task is None:
            return "", "the play itself", ""
        return self._task._uuid, str(self._task.name or self._task.action), self._task.get_path() or ""  # noqa: SLF001
