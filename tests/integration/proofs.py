"""Plans compared with reality: the objects of a namespace are planned, then an operator reconciles them.

The writes of the plan are compared with those in the records of the operator, as ``rolecall replay`` compares: method,
target and body, generated values in their order and times by their offset.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rolecall.kube.references import ObjectKey
from rolecall.runner.record.reader import StoredRecord, read_record
from rolecall.workbench.plan.model import ObjectPlan
from rolecall.workbench.plan.sandbox import Sandbox
from rolecall.workbench.replay.comparison import Compared, compare
from rolecall.workbench.replay.writes import RunLines, Write, writes_of
from tests.integration.operators import Operator
from tests.integration.planned import KeptPlan, ObjectId, Project, joined, plan_of
from tests.integration.sandboxes import Clusters
from tests.support.world import TIMEOUT_SECONDS, eventually

FIRST_RUN_SECONDS = 90.0
"""The time for which an operator can be idle before the first run of an object."""
REST_SECONDS = 8.0
"""Longer than controllers take to trigger an operator by their work for a run."""
MOST_SECONDS = 1800.0

_ENDS = ("Reconcile succeeded", "Reconcile failed", "Object was deleted")


@dataclass(slots=True)
class Records:
    """The records that an operator writes to a directory."""

    directory: Path
    _read: dict[Path, StoredRecord] = field(default_factory=dict)

    def of(self, ident: ObjectId) -> list[StoredRecord]:
        """Return the records of an object, the oldest first."""
        for path in self.directory.glob("*.jsonl"):
            if path not in self._read:
                self._read[path] = read_record(path)
        found = (each for each in self._read.values() if _id_of(each) == ident)
        return sorted(found, key=lambda record: str(record.head["started"]))

    def runs(self, plan: ObjectPlan) -> tuple[list[RunLines], str]:
        """Return the runs that a plan was made for, and why the last one failed; after a failure a plan is over."""
        runs = []
        for record in self.of((plan.gvk.kind, plan.key)):
            runs.append(RunLines.of_record(record))
            if record.end["outcome"] != "succeeded":
                return runs, "\n".join(record.end["failures"])
        return runs, ""


def _id_of(record: StoredRecord) -> ObjectId:
    obj = record.head["object"]
    return str(obj["kind"]), ObjectKey.of_object(obj)


@dataclass(frozen=True, slots=True)
class Proof:
    """The plan of one object with its runs, and the runs that came of it."""

    plan: ObjectPlan
    planned: Sequence[RunLines]
    real: Sequence[RunLines]
    real_failure: str = ""

    @property
    def planned_writes(self) -> tuple[Write, ...]:
        """The writes that were planned."""
        return writes_of(joined(self.planned)).writes

    @property
    def differences(self) -> list[str]:
        """The differences between real and planned writes, as text. Additional writes at the end don't count."""
        compared = self._compared()
        found = [
            f"{each.change}: {each.method} {each.target} by {each.task.name!r}: {each.before}, planned: {each.after}"
            for each in compared.differences
        ]
        return found + compared.notes

    @property
    def surplus(self) -> int:
        """The number of writes after all planned ones."""
        return self._compared().not_reached

    def of_common_runs(self) -> "Proof":
        """Return the runs that both have: how often controllers trigger an operator depends on their speed."""
        count = min(len(self.planned), len(self.real))
        return replace(self, planned=self.planned[:count], real=self.real[:count])

    def _compared(self) -> Compared:
        # The plan has read the values of Secrets themselves where the record has placeholders. Without the text of its
        # reads, the record's placeholders stand for any value that is the same at each ident.
        real = replace(writes_of(joined(self.real)), read_text="")
        return compare(real, writes_of(joined(self.planned)), has_ended_early=True)


async def prove(project: Project, sandbox: Sandbox, clusters: Clusters) -> dict[ObjectId, Proof]:
    """Plan all objects of a namespace, let an operator reconcile them, and return both by kind and key."""
    kept = await plan_of(project, sandbox, clusters.reader)
    assert set(kept.requests) == {"GET"}
    return await follow(project, kept, clusters.operator)


async def follow(project: Project, kept: KeptPlan, kubeconfig: Path) -> dict[ObjectId, Proof]:
    """Let an operator reconcile the planned objects, and return plans and runs by kind and key."""
    directory = project.directory / f"records-{len(list(project.directory.glob('records-*')))}"
    flags = (*project.arguments, "--backoff-max", "5s", "--record-dir", str(directory))
    operator = Operator(project.directory, kubeconfig, project.namespace, flags, dict(project.environment))
    operator.log_file.unlink(missing_ok=True)
    records = Records(directory)
    async with _running(operator):
        await _until_done(kept, records, operator)
    proofs = {(each.gvk.kind, each.key): _proof(each, kept, records) for each in kept.plan.objects}
    _tell(proofs.values())
    return proofs


def _tell(proofs: Iterable[Proof]) -> None:
    """Add proofs to the table of ``make plan-proof``."""
    if table := os.environ.get("ROLECALL_PROOF_TABLE"):
        with Path(table).open("a", encoding="utf-8") as file:
            file.writelines(map(_row, proofs))


def _row(proof: Proof) -> str:
    found = f"{len(proof.planned_writes)} writes planned, {len(proof.differences)} differences"
    return f"{proof.plan.gvk.kind} {proof.plan.key}: {proof.plan.rounds} rounds, {found}\n"


def _proof(plan: ObjectPlan, kept: KeptPlan, records: Records) -> Proof:
    ident = (plan.gvk.kind, plan.key)
    assert ident in kept.runs, f"{ident} has no planned run: {plan.failure}"
    real, failure = records.runs(plan)
    assert real, f"{ident} has no real run"
    return Proof(plan, kept.runs[ident], real, failure)


@asynccontextmanager
async def _running(operator: Operator) -> AsyncIterator[None]:
    async def look() -> bool:
        return operator.is_ready()

    operator.start()
    try:
        await eventually(look, bool, TIMEOUT_SECONDS, "the operator is ready")
        yield
    finally:
        assert await asyncio.to_thread(operator.stop) == 0


async def _until_done(kept: KeptPlan, records: Records, operator: Operator) -> None:
    """Wait until each object has had as many writes as were planned, or until the operator is at rest.

    What is missing then is a difference. Runs that are under way are waited for by the operator, before it stops.
    """
    rest = _Rest(operator)

    async def is_done() -> bool:
        found = {ident: records.of(ident) for ident in kept.runs}
        if rest.seconds() > (REST_SECONDS if all(found.values()) else FIRST_RUN_SECONDS):
            return True
        return all(
            found[ident] and _count(found[ident]) >= len(writes_of(joined(planned)).writes)
            for ident, planned in kept.runs.items()
        )

    await eventually(is_done, bool, MOST_SECONDS, "the operator has done what was planned, or is at rest")


@dataclass(slots=True)
class _Rest:
    """Measures for how long nothing has triggered an operator; a period or a retry starts nothing new."""

    operator: Operator
    _triggered: frozenset[str] = frozenset()
    _since: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Return the time since an object was triggered, or since the run of a triggered object ended."""
        started = self.operator.messages("Reconcile started")
        triggered = frozenset(line["job"] for line in started if not all(map(_is_again, line["causes"])))
        ended = {line["job"] for message in _ENDS for line in self.operator.messages(message)}
        if triggered != self._triggered or not triggered <= ended or not triggered:
            self._triggered, self._since = triggered, time.monotonic()
        return time.monotonic() - self._since


def _is_again(cause: str) -> bool:
    return cause.startswith(("retry", "period", "prune"))


def _count(records: Sequence[StoredRecord]) -> int:
    return sum(len(writes_of(RunLines.of_record(each)).writes) for each in records)
