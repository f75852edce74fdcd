"""``watches.yaml``: which kinds the operator reconciles, and how.

The format is the Go runner's, with the keys of ours that it ignores (``timeout``, ``triggers``, ``status``), so that
one file serves both. Everything is checked before anything starts: an error names the file, the entry, the key and the
line. Keys that nobody knows are told of and do no harm. The result is frozen, and nobody else reads the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonpath_ng import JSONPath

from rolecall.config import watch_keys as keys
from rolecall.config.content import Content, ContentFinder
from rolecall.config.environment import ansible_verbosity, max_concurrent_reconciles
from rolecall.config.errors import ConfigurationError
from rolecall.config.expansion import expand_variables
from rolecall.config.key_types import Key
from rolecall.config.mapping_reader import MappingReader
from rolecall.config.yaml_loader import describe_error, duplicate_keys, first_document
from rolecall.controller.field_paths import FieldPath
from rolecall.controller.selectors import LabelSelector
from rolecall.controller.triggers import ReferenceKind, Trigger
from rolecall.kube.jsonpath import parse_path
from rolecall.kube.references import GVK
from rolecall.logs import get_logger

logger = get_logger("watches")

_TIES: tuple[Key[Any], ...] = (keys.OWNER, keys.LABELS, keys.NAME)


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
    max_runner_artifacts: int = keys.MAX_RUNNER_ARTIFACTS.default
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


@dataclass(frozen=True, slots=True)
class ParsedWatches:
    """What a watches file says: its watches, what is wrong in it, and the keys in it that nobody knows.

    A watch with mistakes is among the watches where its role or playbook is there, with defaults for what is wrong.
    """

    watches: tuple[Watch, ...] = ()
    mistakes: tuple[ConfigurationError, ...] = ()
    unknown: tuple[ConfigurationError, ...] = ()


def load_watches(path: Path, environment: Mapping[str, str], directory: Path | None = None) -> tuple[Watch, ...]:
    """Read and check ``watches.yaml``; roles are looked for from ``directory``, by default the working directory.

    Unknown keys are logged. Raises ConfigurationError with one line that names the file, the entry, the key, the line.
    """
    reading = parse_watches(path, environment, directory)
    if reading.mistakes:
        raise reading.mistakes[0]
    for key in reading.unknown:
        logger.warning("A key of the watches file is unknown", where=str(key))
    return reading.watches


def parse_watches(path: Path, environment: Mapping[str, str], directory: Path | None = None) -> ParsedWatches:
    """Do the same, but return everything that is wrong and unknown. Raises nothing."""
    places = ContentFinder(directory or Path.cwd(), environment)
    try:
        entries = _entries(path, environment)
    except ConfigurationError as error:
        return ParsedWatches(mistakes=(error,))
    watches: list[Watch] = []
    mistakes: list[ConfigurationError] = []
    unknown: list[ConfigurationError] = []
    seen: set[GVK] = set()
    for number, raw in enumerate(entries, 1):
        try:
            fields = _fields(raw, _place(path, number, raw))
        except ConfigurationError as error:
            mistakes.append(error)
            continue
        watch = _read_watch(fields, places, seen)
        watches += [watch] if watch else []
        mistakes += fields.mistakes
        unknown += fields.unknown()
    return ParsedWatches(tuple(watches), tuple(mistakes), tuple(unknown))


def _fields(raw: object, place: str) -> MappingReader:
    fields = MappingReader.of(raw, keys.ENTRY, place)
    for key, first, line in duplicate_keys(raw):
        message = f"is given twice, first in line {first}"
        fields.mistakes.append(ConfigurationError(message, place=place, key=key, line=line))
    return fields


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


def _place(path: Path, number: int, raw: object) -> str:
    kind = raw.get("kind") if isinstance(raw, dict) else None
    return f"{path}: entry {number}" + (f" (kind {kind})" if kind else "")


def _read_watch(fields: MappingReader, places: ContentFinder, seen: set[GVK]) -> Watch | None:
    """Return the watch of an entry, None when there is nothing that it could run; add its kind to those seen."""
    gvk = _read_gvk(fields)
    if gvk in seen:
        fields.add_error(keys.KIND.name, f"duplicate GVK: {gvk}")
    if gvk.version and gvk.kind:
        seen.add(gvk)
    content = places.content(fields)
    if not (fields.get(keys.PLAYBOOK) or fields.get(keys.ROLE)):
        fields.add_error(keys.ROLE.name, "must specify Role or Playbook")
    watch = partial(
        Watch,
        gvk=gvk,
        variables=fields.read(keys.VARS),
        # As in the Go runner, 0s means that the flag decides; only the annotation can switch the period off.
        reconcile_period_seconds=fields.read(keys.RECONCILE_PERIOD) or None,
        timeout_seconds=fields.read(keys.TIMEOUT) or None,
        max_runner_artifacts=fields.read(keys.MAX_RUNNER_ARTIFACTS) or keys.MAX_RUNNER_ARTIFACTS.default,
        manage_status=fields.read(keys.MANAGE_STATUS),
        watch_dependent_resources=fields.read(keys.WATCH_DEPENDENT_RESOURCES),
        watch_cluster_scoped_resources=fields.read(keys.WATCH_CLUSTER_SCOPED_RESOURCES),
        snake_case_parameters=fields.read(keys.SNAKE_CASE_PARAMETERS),
        watch_annotations_changes=fields.read(keys.WATCH_ANNOTATIONS_CHANGES),
        mark_unsafe=fields.read(keys.MARK_UNSAFE),
        blacklist=frozenset(_read_gvk(entry) for entry in fields.entries(keys.BLACKLIST)),
        selector=_read_selector(fields),
        finalizer=_read_finalizer(fields, places),
        triggers=tuple(_read_triggers(fields)),
        status=dict(_read_status(fields)),
        workers=max_concurrent_reconciles(gvk, places.environment),
        verbosity=ansible_verbosity(gvk, places.environment),
    )
    return watch(content=content) if content else None


def _read_gvk(fields: MappingReader) -> GVK:
    gvk = GVK(fields.read(keys.GROUP), fields.read(keys.VERSION), fields.read(keys.KIND))
    for key in (keys.VERSION, keys.KIND):
        if fields.get(key) in (None, ""):
            fields.add_error(key.name, f"invalid GVK: {gvk}: {key.name} must not be empty")
    return gvk


def _read_selector(fields: MappingReader) -> LabelSelector:
    nested = fields.nested(keys.SELECTOR)
    if nested is None:
        return LabelSelector()
    expressions = [
        {key.name: value for key in entry.keys if (value := entry.get(key)) is not None}
        for entry in nested.entries(keys.MATCH_EXPRESSIONS)
    ]
    try:
        return LabelSelector.compile({"matchLabels": nested.read(keys.MATCH_LABELS), "matchExpressions": expressions})
    except ValueError as error:
        fields.add_error(keys.SELECTOR.name, f"error constructing predicate from watches selector: {error}")
        return LabelSelector()


def _read_finalizer(fields: MappingReader, places: ContentFinder) -> Finalizer | None:
    nested = fields.nested(keys.FINALIZER)
    if nested is None:
        return None
    name, variables = nested.read(keys.FINALIZER_NAME), nested.read(keys.VARS)
    if nested.get(keys.FINALIZER_NAME) in (None, ""):
        nested.add_error(keys.FINALIZER_NAME.name, "finalizer must have name")
    content = places.content(nested)
    if not (nested.get(keys.PLAYBOOK) or nested.get(keys.ROLE) or variables):
        nested.add_error(keys.ROLE.name, "must specify Role or Playbook, or vars")
    return Finalizer(name, content, variables)


def _read_triggers(fields: MappingReader) -> Iterator[Trigger]:
    for entry in fields.entries(keys.TRIGGERS):
        gvk = _read_gvk(entry)
        on = tuple(path for text in entry.read(keys.ON) if (path := _read_field(entry, keys.ON, text)))
        given = [key for key in _TIES if entry.get(key)]
        if len(given) != 1:
            found = " and ".join(key.name for key in given) or "none of them"
            entry.add_error(keys.OWNER.name, f"a trigger has exactly one of owner, labels and name; found {found}")
            continue
        [tie] = given
        if tie is not keys.OWNER:
            path = _read_field(entry, tie, entry.read(tie))
            yield from [Trigger(gvk, ReferenceKind(tie.name), path, on)] if path else []
        elif (is_owner := entry.read(keys.OWNER)) is False:
            entry.add_error(keys.OWNER.name, "a trigger by owner says owner: true")
        elif is_owner:
            yield Trigger(gvk, ReferenceKind.OWNER, None, on)


def _read_field(fields: MappingReader, key: Key[Any], text: object) -> FieldPath | None:
    try:
        return FieldPath.parse(_path_text(text))
    except ValueError as error:
        fields.add_error(key.name, str(error))
        return None


def _read_status(fields: MappingReader) -> Iterator[tuple[str, JSONPath]]:
    for name, text in fields.read(keys.STATUS).items():
        try:
            yield name, parse_path(_path_text(text))
        except ValueError as error:
            fields.add_error(f"{keys.STATUS.name}.{name}", str(error))


def _path_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a JSONPath, found {value!r}")  # noqa: TRY004 - the callers add the place
    return value
