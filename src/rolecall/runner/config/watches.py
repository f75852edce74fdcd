"""``watches.yaml``: which kinds the operator reconciles, and how.

The format is the Go runner's, with additional keys that the Go runner ignores (``timeout``, ``triggers``, ``status``),
so that one file works for both. Everything is checked before anything starts: an error names the file, the entry, the
key, and the line. This includes names that the API server will reject. Unknown keys are reported and ignored. The
result is frozen.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonpath_ng import JSONPath

from rolecall.kube.jsonpath import FieldPath, parse_path
from rolecall.kube.references import GVK
from rolecall.kube.selectors import LabelSelector, is_subdomain, qualified_name_problem
from rolecall.runner.config import watch_keys as keys
from rolecall.runner.config.content import Content, ContentFinder, read_declared
from rolecall.runner.config.settings import ansible_verbosity, max_concurrent_reconciles
from rolecall.runner.config.watch_keys import Key, describe_value
from rolecall.runner.config.yaml_reader import (
    ConfigurationError,
    MappingReader,
    describe_error,
    duplicate_keys,
    expand_variables,
    first_document,
)
from rolecall.system.logs import get_logger

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_TRIGGER_REFERENCES: tuple[Key[Any], ...] = (keys.OWNER, keys.LABELS, keys.NAME)


class ReferenceType(StrEnum):
    """How a primary and another object refer to each other."""

    OWNER = "owner"
    LABELS = "labels"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Trigger:
    """One entry of ``triggers``: the other kind, and the reference between its objects and a primary.

    ``path`` is the path in the primary to the labels or names of the other objects; an owner trigger has none.
    ``fields`` are paths into the other object: an update triggers a reconcile only if one of these values changed, or
    if it added or removed the reference.
    """

    gvk: GVK
    reference: ReferenceType
    path: FieldPath | None = None
    fields: tuple[FieldPath, ...] = ()


_Path = TypeVar("_Path")
logger = get_logger("watches")


@dataclass(frozen=True, slots=True)
class Finalizer:
    """What runs before an object is deleted: its own role or playbook, or the main one with these vars."""

    name: str
    content: Content | None
    variables: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of ``watches.yaml``; durations are in seconds, None if the flag decides.

    With ``declared``, only these fields of a spec become variables, for each role. ``workers`` (how many objects are
    reconciled concurrently) and ``verbosity`` come from the environment. ``ready`` has paths into the result of a run:
    ``value``, and if they were given, ``reason`` and ``message``; it is empty if the entry has no ``ready``.
    """

    gvk: GVK
    content: Content
    variables: Mapping[str, Any] = field(default_factory=dict)
    reconcile_period_seconds: float | None = None
    timeout_seconds: float | None = None
    max_runner_artifacts: int = keys.MAX_RUNNER_ARTIFACTS.default
    manage_status: bool = keys.MANAGE_STATUS.default
    ready_conditions: bool | None = None
    ready: Mapping[str, FieldPath] = field(default_factory=dict)
    stalled_after_seconds: float | None = None
    watch_dependent_resources: bool = keys.WATCH_DEPENDENT_RESOURCES.default
    watch_cluster_scoped_resources: bool = keys.WATCH_CLUSTER_SCOPED_RESOURCES.default
    watch_reads: bool = keys.WATCH_READS.default
    snake_case_parameters: bool = keys.SNAKE_CASE_PARAMETERS.default
    watch_annotations_changes: bool = keys.WATCH_ANNOTATIONS_CHANGES.default
    mark_unsafe: bool | None = None
    allow_variables: frozenset[str] = frozenset()
    declared: Mapping[Content, frozenset[str]] | None = None
    blacklist: frozenset[GVK] = frozenset()
    selector: LabelSelector = field(default_factory=LabelSelector)
    finalizer: Finalizer | None = None
    triggers: tuple[Trigger, ...] = ()
    sensitive: tuple[JSONPath, ...] = ()
    status: Mapping[str, FieldPath] = field(default_factory=dict)
    workers: int | None = None
    verbosity: int | None = None

    @property
    def status_warning(self) -> str:
        """Why the operator should not write the status of the kind, empty if it may."""
        if not (self.manage_status and self.gvk.is_built_in):
            return ""
        return (
            f"Kubernetes manages the status of {self.gvk.kind}: set manageStatus to false. The operator adds Running, "
            "Successful, and Failure, but not Ready, Reconciling, and Stalled"
        )

    def content_for(self, *, finalizing: bool) -> Content:
        """Return the role or playbook to run: the finalizer's own if there is one, else the main one."""
        if finalizing and self.finalizer and self.finalizer.content:
            return self.finalizer.content
        return self.content

    def marks_unsafe(self, *, default: bool) -> bool:
        """Return whether strings of the object are marked as data that Ansible never evaluates."""
        return default if self.mark_unsafe is None else self.mark_unsafe

    def declared_for(self, *, finalizing: bool) -> frozenset[str] | None:
        """Return the fields of a spec that become variables of what runs; None for all."""
        return None if self.declared is None else self.declared[self.content_for(finalizing=finalizing)]


@dataclass(frozen=True, slots=True)
class ParsedWatches:
    """The content of a watches file: its watches, the errors in it, and its unknown keys.

    A watch with errors is included if its role or playbook exists, with defaults for the invalid values.
    """

    watches: tuple[Watch, ...] = ()
    errors: tuple[ConfigurationError, ...] = ()
    unknown_keys: tuple[ConfigurationError, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A watched kind, and what its entry decides about its objects as others see them, without role or playbook."""

    gvk: GVK
    selector: LabelSelector = field(default_factory=LabelSelector)
    reconcile_period_seconds: float | None = None
    manage_status: bool = keys.MANAGE_STATUS.default


def read_watched_kinds(path: Path, environment: Mapping[str, str]) -> tuple[WatchedKind, ...]:
    """Return the kinds of a watches file, whose roles and playbooks don't have to exist.

    Raise ConfigurationError for an entry whose kind or selector is invalid.
    """
    kinds: list[WatchedKind] = []
    for number, raw in enumerate(_entries(path, environment), 1):
        reader = MappingReader(raw, keys.ENTRY, f"{path}: entry {number}")
        gvk, selector = _read_gvk(reader), _read_selector(reader)
        if reader.errors:
            raise reader.errors[0]
        period = reader.read(keys.RECONCILE_PERIOD) or None
        kinds.append(WatchedKind(gvk, selector, period, reader.read(keys.MANAGE_STATUS)))
    return tuple(kinds)


def load_watches(path: Path, environment: Mapping[str, str], directory: Path | None = None) -> tuple[Watch, ...]:
    """Read and check ``watches.yaml``; roles are searched from ``directory`` (default: the working directory).

    Log unknown keys. Raise ConfigurationError with one line that names the file, the entry, the key and the line.
    """
    parsed = parse_watches(path, environment, directory)
    if parsed.errors:
        raise parsed.errors[0]
    for key in parsed.unknown_keys:
        logger.warning("Unknown key in the watches file", where=str(key))
    for warning in filter(None, (watch.status_warning for watch in parsed.watches)):
        logger.warning("The status of a built-in kind is managed", reason=warning)
    return parsed.watches


def parse_watches(path: Path, environment: Mapping[str, str], directory: Path | None = None) -> ParsedWatches:
    """Read and check ``watches.yaml`` like ``load_watches``, but return all errors and unknown keys."""
    finder = ContentFinder(directory or Path.cwd(), environment)
    try:
        entries = _entries(path, environment)
    except ConfigurationError as error:
        return ParsedWatches(errors=(error,))
    watches: list[Watch] = []
    errors: list[ConfigurationError] = []
    unknown_keys: list[ConfigurationError] = []
    seen: dict[tuple[str, str], str] = {}
    for number, raw in enumerate(entries, 1):
        kind = raw.get("kind") if isinstance(raw, dict) else None
        place = f"{path}: entry {number}" + (f" (kind {kind})" if kind else "")
        try:
            reader = MappingReader(raw, keys.ENTRY, place)
        except ConfigurationError as error:
            errors.append(error)
            continue
        for key, first, line in duplicate_keys(raw):
            message = f"duplicate key, first in line {first}"
            reader.errors.append(ConfigurationError(message, place=place, key=key, line=line))
        watch = _read_watch(reader, finder, seen)
        watches += [watch] if watch else []
        errors += reader.errors
        unknown_keys += reader.unknown_keys()
    return ParsedWatches(tuple(watches), tuple(errors), tuple(unknown_keys))


def _entries(path: Path, environment: Mapping[str, str]) -> list[Any]:
    try:
        document = first_document(expand_variables(path.read_text(encoding="utf-8"), environment))
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except (yaml.YAMLError, ValueError) as error:
        text, line = describe_error(error)
        raise ConfigurationError(text, place=str(path), line=line) from error
    if document is None:
        return []
    if not isinstance(document, list):
        kind = "mapping" if isinstance(document, dict) else type(document).__name__
        raise ConfigurationError(f"expected a list of entries, found a {kind}", place=str(path))
    return document


def _read_watch(reader: MappingReader, finder: ContentFinder, seen: dict[tuple[str, str], str]) -> Watch | None:
    """Return the watch of an entry, None if it has no role or playbook; add its kind to ``seen``, with its version.

    Objects are identified by group and kind. Two versions of one kind are the same objects, and runs of one object must
    not overlap.
    """
    gvk = _read_gvk(reader)
    other = seen.get((gvk.group, gvk.kind))
    if other == gvk.version:
        reader.add_error(keys.KIND.name, f"duplicate GVK: {gvk}")
    elif other is not None:
        message = f"another entry watches this kind in version {other}: keep one entry, its objects are the same"
        reader.add_error(keys.KIND.name, message)
    if gvk.version and gvk.kind:
        seen[gvk.group, gvk.kind] = gvk.version
    content = finder.content(reader)
    if not (reader.get(keys.PLAYBOOK) or reader.get(keys.ROLE)):
        reader.add_error(keys.ROLE.name, "must specify Role or Playbook")
    finalizer = _read_finalizer(reader, finder)
    manage_status, ready_conditions = reader.read(keys.MANAGE_STATUS), reader.read(keys.READY_CONDITIONS)
    declared = read_declared(reader, [content, finalizer.content if finalizer else None])
    make = partial(
        Watch,
        gvk=gvk,
        variables=reader.read(keys.VARS),
        # As in the Go runner, 0s means that the flag decides; only the annotation can switch the period off.
        reconcile_period_seconds=reader.read(keys.RECONCILE_PERIOD) or None,
        timeout_seconds=reader.read(keys.TIMEOUT) or None,
        max_runner_artifacts=reader.read(keys.MAX_RUNNER_ARTIFACTS) or keys.MAX_RUNNER_ARTIFACTS.default,
        manage_status=manage_status,
        ready_conditions=ready_conditions,
        ready=_read_ready(reader, manage_status=manage_status, ready_conditions=ready_conditions),
        stalled_after_seconds=reader.read(keys.STALLED_AFTER),
        watch_dependent_resources=reader.read(keys.WATCH_DEPENDENT_RESOURCES),
        watch_cluster_scoped_resources=reader.read(keys.WATCH_CLUSTER_SCOPED_RESOURCES),
        watch_reads=reader.read(keys.WATCH_READS),
        snake_case_parameters=reader.read(keys.SNAKE_CASE_PARAMETERS),
        watch_annotations_changes=reader.read(keys.WATCH_ANNOTATIONS_CHANGES),
        mark_unsafe=reader.read(keys.MARK_UNSAFE),
        allow_variables=frozenset(str(name) for name in reader.read(keys.ALLOW_VARIABLES)),
        blacklist=frozenset(_read_gvk(entry) for entry in reader.entries(keys.BLACKLIST)),
        selector=_read_selector(reader),
        declared=declared,
        finalizer=finalizer,
        triggers=tuple(_read_triggers(reader)),
        sensitive=tuple(_paths(reader, keys.SENSITIVE, parse_path)),
        status=_named_paths(reader, keys.STATUS, reader.read(keys.STATUS)),
        workers=max_concurrent_reconciles(gvk, finder.environment),
        verbosity=ansible_verbosity(gvk, finder.environment),
    )
    return make(content=content) if content else None


def _read_gvk(reader: MappingReader) -> GVK:
    gvk = GVK(reader.read(keys.GROUP), reader.read(keys.VERSION), reader.read(keys.KIND))
    for key in (keys.VERSION, keys.KIND):
        if reader.get(key) in (None, ""):
            reader.add_error(key.name, f"invalid GVK: {gvk}: {key.name} must not be empty")
    # No CRD or API service can have other ones: the operator would wait for the kind indefinitely.
    if gvk.group and not is_subdomain(gvk.group):
        reader.add_error(keys.GROUP.name, f"expected a lowercase domain name, found {gvk.group!r}")
    for key, text in ((keys.VERSION, gvk.version), (keys.KIND, gvk.kind.lower())):
        if text and not _LABEL.fullmatch(text):
            rule = "expected at most 63 letters, digits, and hyphens, the first one a letter"
            reader.add_error(key.name, f"invalid GVK: {gvk}: {rule}")
    return gvk


def _read_ready(reader: MappingReader, *, manage_status: bool, ready_conditions: bool | None) -> dict[str, FieldPath]:
    found = reader.get(keys.READY)
    if found is None:
        return {}
    if not manage_status or ready_conditions is False:
        switch = keys.READY_CONDITIONS if manage_status else keys.MANAGE_STATUS
        reader.add_error(keys.READY.name, f"has no effect, because {switch.name} is false: remove one of the two")
    nested = reader.nested(keys.READY) if isinstance(found, dict) else None
    if nested is None:
        path = _path(reader, keys.READY.name, FieldPath.parse, found)
        return {keys.READY_VALUE.name: path} if path else {}
    texts = {key.name: nested.get(key) for key in keys.READY.keys if key.is_required or nested.get(key) is not None}
    return _named_paths(reader, keys.READY, texts)


def _read_selector(reader: MappingReader) -> LabelSelector:
    nested = reader.nested(keys.SELECTOR)
    if nested is None:
        return LabelSelector()
    expressions = [
        {key.name: value for key in keys.MATCH_EXPRESSIONS.keys if (value := entry.get(key)) is not None}
        for entry in nested.entries(keys.MATCH_EXPRESSIONS)
    ]
    try:
        return LabelSelector.compile({"matchLabels": nested.read(keys.MATCH_LABELS), "matchExpressions": expressions})
    except ValueError as error:
        reader.add_error(keys.SELECTOR.name, f"error constructing predicate from watches selector: {error}")
        return LabelSelector()


def _read_finalizer(reader: MappingReader, finder: ContentFinder) -> Finalizer | None:
    nested = reader.nested(keys.FINALIZER)
    if nested is None:
        return None
    name, variables = nested.read(keys.FINALIZER_NAME), nested.read(keys.VARS)
    if nested.get(keys.FINALIZER_NAME) in (None, ""):
        nested.add_error(keys.FINALIZER_NAME.name, "finalizer must have name")
    elif problem := qualified_name_problem(name):
        nested.add_error(keys.FINALIZER_NAME.name, problem)
    content = finder.content(nested)
    if not (nested.get(keys.PLAYBOOK) or nested.get(keys.ROLE) or variables):
        nested.add_error(keys.ROLE.name, "must specify Role or Playbook, or vars")
    return Finalizer(name, content, variables)


def _read_triggers(reader: MappingReader) -> Iterator[Trigger]:
    for entry in reader.entries(keys.TRIGGERS):
        gvk = _read_gvk(entry)
        fields = tuple(_paths(entry, keys.FIELDS, FieldPath.parse))
        values = {key: entry.read(key) for key in _TRIGGER_REFERENCES}
        references = [key for key, value in values.items() if entry.get(key) and value is not False]
        if not references and values[keys.OWNER] is False:
            entry.add_error(keys.OWNER.name, "expected true, found false")
        elif len(references) != 1:
            found = " and ".join(key.name for key in references) or "none"
            entry.add_error(keys.OWNER.name, f"expected exactly one of owner, labels and name, found {found}")
        elif references[0] is not keys.OWNER:
            [reference] = references
            if path := _path(entry, reference.name, FieldPath.parse, values[reference]):
                yield Trigger(gvk, ReferenceType(reference.name), path, fields)
        elif values[keys.OWNER]:
            yield Trigger(gvk, ReferenceType.OWNER, None, fields)


def _paths(reader: MappingReader, key: Key[Sequence[Any]], parse: Callable[[str], _Path]) -> Iterator[_Path]:
    """Yield the parsed JSONPaths in a list; record an error for each invalid one."""
    for text in reader.read(key):
        if path := _path(reader, key.name, parse, text):
            yield path


def _named_paths(reader: MappingReader, key: Key[Any], texts: Mapping[str, object]) -> dict[str, FieldPath]:
    """Return the parsed JSONPaths in a mapping; record an error for each invalid one."""
    paths = {name: _path(reader, f"{key.name}.{name}", FieldPath.parse, text) for name, text in texts.items()}
    return {name: path for name, path in paths.items() if path}


def _path(reader: MappingReader, name: str, parse: Callable[[str], _Path], text: object) -> _Path | None:
    """Return a parsed JSONPath; None, with an error for the key of this name, if it is invalid."""
    if not isinstance(text, str):
        reader.add_error(name, f"expected a JSONPath, found {describe_value(text)}")
        return None
    try:
        return parse(text)
    except ValueError as error:
        reader.add_error(name, str(error))
        return None
