"""``watches.yaml``: which kinds the operator reconciles, and how.

The format is the Go runner's, with the keys of ours that it ignores (``timeout``, ``triggers``, ``status``), so that
one file serves both. Everything is checked before anything starts: an error names the file, the entry, the key and the
line. Keys that nobody knows are told of and do no harm. The result is frozen, and nobody else reads the file.
Neighbours: ``yaml_reading`` parses, ``fields`` reads values, ``content`` finds roles and playbooks, ``environment`` has
what is set per kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonpath_ng import JSONPath

from rolecall.app.content import Content, Places
from rolecall.app.environment import verbosity_of, workers_of
from rolecall.app.errors import ConfigurationError
from rolecall.app.expansion import expand
from rolecall.app.fields import Fields
from rolecall.app.yaml_reading import duplicates, first_document
from rolecall.control.fields import FieldPath
from rolecall.control.selectors import LabelSelector
from rolecall.control.triggers import ReferenceKind, Trigger
from rolecall.kube.paths import parse_path
from rolecall.kube.references import GVK
from rolecall.logs import get_logger

DEFAULT_ARTIFACTS = 20
logger = get_logger("watches")


@dataclass(frozen=True, slots=True)
class Finalizer:
    """What runs before an object of the kind may go: a role or playbook of its own, or the main one with these vars."""

    name: str
    content: Content | None
    variables: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of ``watches.yaml``; durations are in seconds, None where the flag decides.

    ``workers`` (how many objects are reconciled at once) and ``verbosity`` come from the environment.
    """

    gvk: GVK
    content: Content
    variables: Mapping[str, Any] = field(default_factory=dict)
    reconcile_period_seconds: float | None = None
    timeout_seconds: float | None = None
    max_runner_artifacts: int = DEFAULT_ARTIFACTS
    manage_status: bool = True
    watch_dependent_resources: bool = True
    watch_cluster_scoped_resources: bool = False
    snake_case_parameters: bool = True
    watch_annotations_changes: bool = False
    mark_unsafe: bool | None = None
    blacklist: frozenset[GVK] = frozenset()
    selector: LabelSelector = field(default_factory=LabelSelector)
    finalizer: Finalizer | None = None
    triggers: tuple[Trigger, ...] = ()
    status: Mapping[str, JSONPath] = field(default_factory=dict)
    workers: int | None = None
    verbosity: int | None = None

    def content_for(self, *, finalizing: bool) -> Content:
        """Return what runs: the finalizer's own role or playbook on a finalizer run, else the main one."""
        if finalizing and self.finalizer and self.finalizer.content:
            return self.finalizer.content
        return self.content


def load_watches(path: Path, environment: Mapping[str, str], directory: Path | None = None) -> tuple[Watch, ...]:
    """Read and check ``watches.yaml``; roles are looked for from ``directory``, by default the working directory.

    Unknown keys are logged. Raises ConfigurationError with one line that names the file, the entry, the key, the line.
    """
    watches, unknown = read_watches(path, environment, directory)
    for key in unknown:
        logger.warning("A key of the watches file is unknown", where=key)
    return watches


def read_watches(
    path: Path, environment: Mapping[str, str], directory: Path | None = None
) -> tuple[tuple[Watch, ...], list[str]]:
    """Do the same, but return the watches and what there is to say of unknown keys, one line for each."""
    places = Places(directory or Path.cwd(), environment)
    watches: list[Watch] = []
    unknown: list[str] = []
    for number, raw in enumerate(_entries(path, environment), 1):
        fields = _fields(raw, _place(path, number, raw))
        watch = _read_watch(fields, places)
        if any(watch.gvk == other.gvk for other in watches):
            raise fields.error("kind", f"duplicate GVK: {watch.gvk}")
        watches.append(watch)
        unknown += fields.unknown()
    return tuple(watches), unknown


def _fields(raw: object, place: str) -> Fields:
    fields = Fields.of(raw, place)
    for key, first, line in duplicates(raw):
        raise ConfigurationError(f"{place}, key {key} (line {line}): is given twice, first in line {first}")
    return fields


def _entries(path: Path, environment: Mapping[str, str]) -> list[Any]:
    try:
        document = first_document(expand(path.read_text(encoding="utf-8"), environment))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return []
    if not isinstance(document, list):
        kind = "mapping" if isinstance(document, dict) else type(document).__name__
        raise ConfigurationError(f"{path}: expected a list of entries, found a {kind}")
    return document


def _place(path: Path, number: int, raw: object) -> str:
    kind = raw.get("kind") if isinstance(raw, dict) else None
    return f"{path}: entry {number}" + (f" (kind {kind})" if kind else "")


def _read_watch(fields: Fields, places: Places) -> Watch:
    gvk = _read_gvk(fields)
    content = places.content(fields)
    if content is None:
        raise fields.error("role", "must specify Role or Playbook")
    return Watch(
        gvk=gvk,
        content=content,
        variables=fields.mapping("vars"),
        # As in the Go runner, 0s means that the flag decides; only the annotation can switch the period off.
        reconcile_period_seconds=fields.seconds("reconcilePeriod") or None,
        timeout_seconds=fields.seconds("timeout") or None,
        max_runner_artifacts=fields.integer("maxRunnerArtifacts", 0) or DEFAULT_ARTIFACTS,
        manage_status=fields.boolean("manageStatus", default=True),
        watch_dependent_resources=fields.boolean("watchDependentResources", default=True),
        watch_cluster_scoped_resources=fields.boolean("watchClusterScopedResources", default=False),
        snake_case_parameters=fields.boolean("snakeCaseParameters", default=True),
        watch_annotations_changes=fields.boolean("watchAnnotationsChanges", default=False),
        mark_unsafe=fields.choice("markUnsafe"),
        blacklist=frozenset(_read_gvk(entry) for entry in fields.entries("blacklist")),
        selector=_read_selector(fields),
        finalizer=_read_finalizer(fields, places),
        triggers=tuple(_read_triggers(fields)),
        status={name: _read_path(fields, f"status.{name}", text) for name, text in fields.mapping("status").items()},
        workers=workers_of(gvk, places.environment),
        verbosity=verbosity_of(gvk, places.environment),
    )


def _read_gvk(fields: Fields) -> GVK:
    gvk = GVK(fields.text("group"), fields.text("version"), fields.text("kind"))
    for key in ("version", "kind"):
        if not getattr(gvk, key):
            raise fields.error(key, f"invalid GVK: {gvk}: {key} must not be empty")
    return gvk


def _read_selector(fields: Fields) -> LabelSelector:
    nested = fields.nested("selector")
    if nested is None:
        return LabelSelector()
    names = ("key", "operator", "values")
    expressions = [
        {name: value for name in names if (value := entry.get(name)) is not None}
        for entry in nested.entries("matchExpressions")
    ]
    try:
        return LabelSelector.compile({"matchLabels": nested.mapping("matchLabels"), "matchExpressions": expressions})
    except ValueError as error:
        raise fields.error("selector", f"error constructing predicate from watches selector: {error}") from error


def _read_finalizer(fields: Fields, places: Places) -> Finalizer | None:
    nested = fields.nested("finalizer")
    if nested is None:
        return None
    name, variables = nested.text("name"), nested.mapping("vars")
    if not name:
        raise nested.error("name", "finalizer must have name")
    content = places.content(nested)
    if content is None and not variables:
        raise nested.error("role", "must specify Role or Playbook, or vars")
    return Finalizer(name, content, variables)


def _read_triggers(fields: Fields) -> Iterator[Trigger]:
    for entry in fields.entries("triggers"):
        gvk = _read_gvk(entry)
        given = [key for key in ("owner", "labels", "name") if entry.get(key)]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise entry.error("owner", f"a trigger has exactly one of owner, labels and name; found {found}")
        reference = ReferenceKind(given[0])
        if reference is ReferenceKind.OWNER and not entry.boolean("owner", default=False):
            raise entry.error("owner", "a trigger by owner says owner: true")
        path = None if reference is ReferenceKind.OWNER else _read_field(entry, given[0], entry.text(given[0]))
        yield Trigger(gvk, reference, path, tuple(_read_field(entry, "on", text) for text in entry.items("on")))


def _read_field(fields: Fields, key: str, text: object) -> FieldPath:
    try:
        return FieldPath.parse(_path_text(text))
    except ValueError as error:
        raise fields.error(key, str(error)) from error


def _read_path(fields: Fields, key: str, text: object) -> JSONPath:
    try:
        return parse_path(_path_text(text))
    except ValueError as error:
        raise fields.error(key, str(error)) from error


def _path_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a JSONPath, found {value!r}")  # noqa: TRY004 - the callers add the place
    return value
