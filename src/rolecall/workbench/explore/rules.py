"""The rules of the test: what follows from a settled object, and from a fresh one with the same spec. Pure.

``fresh``: edits end as an object created with the last spec. ``return``: a spec that the object had before ends as it
did then. ``quiet``: a second run of a spec changes nothing, nor does one in another process. ``valid``: a spec that the
API server accepts doesn't fail in the role. ``delete``: nothing that runs made remains after the deletion.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.runner.proxy.made_for import PRUNE_ANNOTATION
from rolecall.workbench.comparison.clocks import LEAST_TOLERANCE_SECONDS, Clocks
from rolecall.workbench.comparison.end_states import Baseline, Difference, EndObject, EndState, ObjectId
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.comparison.variables import leaves

KEPT_KINDS: Final = frozenset({"Namespace", "PersistentVolumeClaim", "CustomResourceDefinition", "Job"})
"""The kinds whose objects roles usually keep, because they contain data, or can't be changed."""

REJECTING: Final = frozenset(
    f"{prefix}{name}" for prefix in ("", "ansible.builtin.") for name in ("assert", "fail", "validate_argument_spec")
)
"""The actions that reject a spec on purpose."""

_OPERATORS_CONDITIONS: Final = frozenset(
    {"Running", "Successful", "Failure", "Paused", "Ready", "Reconciling", "Stalled"}
)
_ALLOCATED: Final = frozenset({"clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies"})
_NAMING: Final = ("name", "namespace", "image", "host", "hosts")
_OWN_ANNOTATIONS: Final = "rolecall.dev/"
_IMMUTABLE: Final = (
    "delete and create the object if its field can't be changed, or add the rule self == oldSelf to the CRD"
)
_UNSTABLE: Final = "write only values that stay the same: sort what comes from a set, whose order each process chooses"
_INDEX: Final = re.compile(r"\[\d+\]")


class Rule(StrEnum):
    """A rule of the test."""

    FRESH = "fresh"
    RETURN = "return"
    QUIET = "quiet"
    VALID = "valid"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Settled:
    """An object for which no run is due: its end state, and how its runs ended.

    ``failure`` is empty after a success, and ``failed`` is the task that failed; ``is_rejected`` if it did so on
    purpose. ``noisy`` is the first task that changed something in a run that should have changed nothing.
    ``stopped_at`` is why the runs are incomplete. Its values may be older than ``started`` by ``age_seconds``.
    """

    end: EndState
    started: datetime
    seconds: float
    failure: str = ""
    failed: TaskName | None = None
    is_rejected: bool = False
    noisy: TaskName | None = None
    stopped_at: str = ""
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Symptom:
    """A broken rule: the responsible task if it is known, what was found, and what the author can do.

    ``place`` is the kind and path that differ, or the edited field.
    """

    rule: Rule
    task: TaskName | None
    place: str
    text: str
    remedy: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for symptoms that are one finding: the rule, the task, and the path without indexes."""
        rule = Rule.FRESH if self.rule is Rule.RETURN else self.rule
        return str(rule), self.task.location or self.task.name if self.task else "", self.place


def normal(end: EndState, primary: ObjectId) -> EndState:
    """Return an end state without what the API server allocates, and without what the operator notes itself."""
    return {ident: _normal(each, is_primary=ident == primary) for ident, each in end.items()}


def _normal(found: EndObject, *, is_primary: bool) -> EndObject:
    content = dict(found.content)
    spec, status = content.get("spec"), content.get("status")
    if found.gvk.kind == "Service" and isinstance(spec, dict):
        kept = {name: value for name, value in spec.items() if name not in _ALLOCATED or value in ("None", ["None"])}
        ports = [{k: v for k, v in each.items() if k != "nodePort"} for each in spec.get("ports") or ()]
        content["spec"] = kept | ({"ports": ports} if ports else {})
    metadata = dict(metadata_of(content))
    if isinstance(annotations := metadata.pop("annotations", None), dict):
        kept = {name: value for name, value in annotations.items() if not name.startswith(_OWN_ANNOTATIONS)}
        metadata |= {"annotations": kept} if kept else {}
    if owners := metadata.pop("ownerReferences", None):  # an object whose owners have other uids doesn't count
        metadata["ownerReferences"] = [{k: v for k, v in each.items() if k != "uid"} for each in owners]
    content["metadata"] = metadata
    if isinstance(status, dict):
        content["status"] = {name: value for name, value in status.items() if name != "observedGeneration"}
        if is_primary and isinstance(conditions := status.get("conditions"), list):
            others = [each for each in conditions if each.get("type") not in _OPERATORS_CONDITIONS]
            content["status"]["conditions"] = others
    return EndObject(found.gvk, found.key, content)


def differences(
    fresh: Settled, again: Settled, walked: Settled, ignored: frozenset[str], show: Callable[[str], str]
) -> list[Difference]:
    """Return the differences of a settled object from a fresh one; values that differ in two fresh ones don't count.

    ``ignored`` are the places that every run changes. ``show`` hides secrets.
    """

    def clocks(each: Settled) -> Clocks:
        tolerance = LEAST_TOLERANCE_SECONDS + each.age_seconds + max(fresh.seconds, each.seconds)
        return Clocks(fresh.started, each.started, tolerance)

    found = Baseline(fresh.end, again.end, clocks(again)).differences(walked.end, clocks(walked), show)
    return [each for each in found if noise_place_of(each) not in ignored]


def noise_place_of(found: Difference) -> str:
    """Return the object and the path that differ, without indexes, or the kind of an object that is additional."""
    return f"{found.subject} {_INDEX.sub('[]', found.path)}" if found.path else place_of(found)


def place_of(found: Difference) -> str:
    """Return the kind and the path of a difference, without names and indexes."""
    return f"{found.subject.partition(' ')[0]} {_INDEX.sub('[]', found.path)}".rstrip()


def is_kept(found: Difference) -> bool:
    """Return whether a difference is one of an object that roles usually keep."""
    return found.subject.partition(" ")[0] in KEPT_KINDS


def symptom_of(found: Difference, rule: Rule, writers: Mapping[tuple[str, str], TaskName], *, prunes: bool) -> Symptom:
    """Return a difference as a symptom; ``writers`` are the tasks that wrote the objects and fields, by titles."""
    path = _INDEX.sub("", found.path)
    task = writers.get((found.subject, path)) or writers.get((found.subject, ""))
    where = f"{found.subject}: {_INDEX.sub('[]', found.path)}"
    if found.found == "additional":
        text = f"{found.subject} remains"
        remedy = f'write {PRUNE_ANNOTATION}: "true" into its definition' if prunes else "prune it, or state: absent"
    elif found.found == "missing":
        text = f"{found.subject} is missing"
        remedy = "create it whenever the spec requires it, not only after a change of something else"
    elif not found.expected:
        text, remedy = f"{where} keeps {_short(found.found)}", "apply: true (state: present merges)"
    else:
        text = f"{where} is {_short(found.found) or 'absent'}, not {_short(found.expected)}"
        remedy = "write the field in every run; apply: true, if it depends on the length of a list"
    return Symptom(rule, task, place_of(found), text, remedy)


def failure_of(walked: Settled, fresh: Settled, values: Mapping[str, Any]) -> Symptom | None:
    """Return the symptom if runs failed; None if none did. ``values`` are the changed fields with their values."""
    failed = walked if walked.failure else fresh
    if not failed.failure:
        return None
    text = f"fails{_at(failed.failed)}: {_message(failed.failure)}"
    if fresh.failure:
        return Symptom(Rule.VALID, failed.failed, ", ".join(values), text, schema_rule(values))
    return Symptom(Rule.FRESH, failed.failed, ", ".join(values), f"{text}; a fresh object doesn't", _IMMUTABLE)


def schema_rule(values: Mapping[str, Any]) -> str:
    """Return the rule in the argument specs, or in the CRD's schema, that would have rejected these values."""
    if len(values) != 1:
        return "required_together, mutually_exclusive, or required_if in meta/argument_specs.yml"
    [(name, value)] = values.items()
    text = f"elements or options for {name} in meta/argument_specs.yml"
    if value is None:
        text = f"required: true, or a default for {name} in meta/argument_specs.yml"
    elif isinstance(value, bool):
        text = f"choices for {name} in meta/argument_specs.yml, or a task for {str(value).lower()}"
    elif isinstance(value, int | float):
        bound = f"minimum: {value + 1}" if value <= 1 else f"maximum: {value - 1}"
        text = f"{bound} for {name} in the schema of the CRD"
    elif isinstance(value, str):
        text = f"choices for {name} in meta/argument_specs.yml, or a pattern in the schema of the CRD"
    elif not value:
        text = f"minItems: 1 or minProperties: 1 for {name} in the schema of the CRD"
    return text


def noise_of(walked: Settled) -> Symptom | None:
    """Return the symptom if a run of an unchanged spec still changed something."""
    if walked.noisy is None:
        return None
    text = f"every run changes something{_at(walked.noisy)}"
    return Symptom(Rule.QUIET, walked.noisy, "", text, "make the task idempotent: write only values that stay the same")


def unstable_of(found: Sequence[Difference], writers: Mapping[tuple[str, str], TaskName]) -> list[Symptom]:
    """Return a symptom for each task whose values another process of the operator changes; ``found`` are these."""
    symptoms: dict[TaskName | None, Symptom] = {}
    for each in found:
        path = _INDEX.sub("", each.path)
        task = writers.get((each.subject, path)) or writers.get((each.subject, ""))
        where = f"{each.subject}: {_INDEX.sub('[]', each.path)}" if each.path else each.subject
        text = f"another process of the operator changes {where}"
        symptoms.setdefault(task, Symptom(Rule.QUIET, task, "", text, _UNSTABLE))
    return list(symptoms.values())


def deletion_of(settled: Settled, primary: ObjectId, made: Mapping[ObjectId, TaskName | None]) -> list[Symptom]:
    """Return a symptom for each object that remains after the deletion of the primary; ``made`` are those of runs."""
    if primary in settled.end:
        reason = _message(settled.failure) or "its finalizer remains"
        text = f"{settled.end[primary].title} isn't deleted: {reason}"
        return [Symptom(Rule.DELETE, settled.failed, "primary", text, "the finalizer's run must succeed for any spec")]
    remedy = "an owner reference, or a finalizer that deletes it"
    return [
        Symptom(Rule.DELETE, made[ident], each.gvk.kind, f"{each.title} remains", remedy)
        for ident, each in settled.end.items()
        if ident in made and each.gvk.kind not in KEPT_KINDS
    ]


def names_in(end: EndState) -> frozenset[str]:
    """Return the texts that objects use as names, namespaces, images, or hosts."""
    found = [pair for each in end.values() for pair in leaves(each.content, frozenset())]
    named = [(str(next(part for part in path[::-1] if isinstance(part, str))), value) for path, value in found if path]
    return frozenset(value for name, value in named if isinstance(value, str) and name.lower().endswith(_NAMING))


def _at(task: TaskName | None) -> str:
    return f" at {task.shown_location or task.name}" if task else ""


def _message(text: str) -> str:
    """Return a failure in one line, without the name of its task."""
    first = next(iter(text.splitlines()), "")
    return re.sub(r"^Task '.*?'(?: on \S+)?: ", "", first)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"  # noqa: PLR2004 - characters of a row
