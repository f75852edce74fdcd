"""Finds files of a project that describe an earlier role: samples, results, columns, goals, defaults, and records.

The argument specs of a role are what the other files must match, and its tasks with ``set_stats`` are what the status
shows. A new project has all of these files, and an edit of the role leaves each of them as it was. Every finding is a
warning with the edit that fixes it. Whatever the files don't show is assumed to be right: a role without argument specs
takes any field, and a role that includes others, or computes the names of its results, may report any result.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import PlaybookContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.config.yaml_reader import LocatedMapping, all_documents, describe_error
from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.reader import RecordError, StoredRecord, read_record
from rolecall.runner.runs.events import STATUS_ACTIONS
from rolecall.runner.runs.variables import snake_case
from rolecall.workbench.project.argument_specs import ArgumentSpecError, RoleArguments, read_role_arguments
from rolecall.workbench.project.problems import Problem, Severity, line_of, watch_entries
from rolecall.workbench.yaml_files import below, listed, yaml_files

_OF_THE_OPERATOR: Final = frozenset({"conditions", "observedGeneration"})
"""The fields of a status that the operator writes."""

REPLACE_RECORD: Final = "Replace it with a record of 'rolecall demo --record-dir DIR'"

_STATS: Final = re.compile(r"\$\.stats\.(\w+)|\$\.stats\[['\"](\w+)['\"]\]")
_FIELD: Final = re.compile(r"\$?\.(spec|status)\.(\w+)")
_SET_STATS: Final = ("set_stats", "ansible.builtin.set_stats", "ansible.legacy.set_stats")
_CALLS_OTHERS: Final = re.compile(r"\b(?:include_role|import_role|roles)\s*:")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The samples of a project (files and directories), its demo.yaml, and the directories of its recorded runs."""

    samples: tuple[Path, ...] = ()
    demo: Path = Path("demo.yaml")
    records: tuple[Path, ...] = ()

    @classmethod
    def found_in(cls, project: Path) -> "ProjectFiles":
        """Return the files at their usual paths in a project, and the samples that demo.yaml lists."""
        demo = project / "demo.yaml"
        paths = [project / each for each in ("deploy/samples", "config/samples")]
        with suppress(OSError, ValueError, yaml.YAMLError, TypeError):
            paths += [
                project / str(each) for each in listed(yaml.safe_load(demo.read_text(encoding="utf-8")), "samples")
            ]
        samples = {each.resolve(): each for each in paths if each.exists()}
        records = project / "tests/records"
        return cls(tuple(samples.values()), demo, (records,) if records.is_dir() else ())


@dataclass(frozen=True, slots=True)
class _Results:
    """The names that tasks report with ``set_stats``, and whether they are all; and whether tasks write the status."""

    names: frozenset[str]
    are_all: bool
    write_status: bool

    @classmethod
    def of(cls, watch: Watch, role: Path) -> "_Results":
        """Read the tasks of a role, and of the playbook that calls it."""
        names: set[str] = set()
        are_all, writes_status = True, False
        is_playbook = isinstance(watch.content, PlaybookContent)
        calls = 0
        for file in (
            *yaml_files(*_existing(role, "tasks", "handlers")),
            *([watch.content.path] if is_playbook else ()),
        ):
            try:
                text = file.read_text(encoding="utf-8")
                found = list(_reported(yaml.safe_load(text)))
            except (OSError, ValueError, yaml.YAMLError):
                return cls(frozenset(), are_all=False, write_status=True)
            names |= {str(name) for data in found if isinstance(data, dict) for name in data}
            without_comments = _COMMENT.sub("", text)
            are_all = are_all and all(isinstance(data, dict) for data in found)
            are_all = are_all and len(re.findall(r"\bset_stats\b", without_comments)) <= len(found)
            calls += len(_CALLS_OTHERS.findall(without_comments))
            writes_status = writes_status or any(action in without_comments for action in STATUS_ACTIONS)
        is_alone = calls <= (1 if is_playbook else 0) and not any("{{" in name for name in names)
        return cls(frozenset(names), are_all and is_alone, writes_status or not is_alone)


def _existing(role: Path, *names: str) -> list[Path]:
    return [role / name for name in names if (role / name).exists()]


def _reported(value: Any) -> Iterator[Any]:
    """Yield the data of each ``set_stats`` in tasks."""
    if isinstance(value, list):
        for each in value:
            yield from _reported(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in _SET_STATS:
                yield each.get("data") if isinstance(each, dict) else each
            else:
                yield from _reported(each)


@dataclass(slots=True)
class _Kind:
    """A watched kind: its arguments, its results, and its schema; each is None if it isn't known."""

    watch: Watch
    entry: LocatedMapping | None
    arguments: RoleArguments | None
    schema: Mapping[str, Any] | None
    is_namespaced: bool | None = None
    results: _Results = field(default_factory=lambda: _Results(frozenset(), are_all=False, write_status=True))

    @property
    def role(self) -> str:
        """The name of the role, for messages."""
        return self.arguments.role.name if self.arguments else self.watch.content.path.stem

    def unknown(self, spec: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, str]]:
        """Yield the excess and missing keys of a spec, by the argument specs: mapping, key, and message."""
        if self.arguments is not None and not self.watch.gvk.is_built_in:
            fields = below(self.schema, "properties", "spec")
            yield from self._unknown(spec, self.arguments.options, "spec", fields)

    def _unknown(
        self, value: Mapping[str, Any], options: Mapping[str, Any], path: str, schema: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[str, Any], str, str]]:
        given = self.arguments.given if self.arguments else {}
        names = {alias: name for name, option in options.items() for alias in (name, *(option.get("aliases") or ()))}
        found = {names.get(self._variable(key), self._variable(key)): key for key in value}
        for name, key in found.items():
            option, where = options.get(name), f"{path}.{key}"
            if option is None and not (path == "spec" and name in given):
                yield value, key, f"{where} isn't an option of the role {self.role}"
            elif option and (nested := option.get("options")):
                inner = below(schema, "properties", key)
                for each in value[key] if isinstance(value[key], list) else [value[key]]:
                    if isinstance(each, dict):
                        yield from self._unknown(each, nested, where, below(inner, "items") or inner)
        for name, option in options.items():
            has_default = any("default" in below(schema, "properties", key) for key in self._keys(schema, name))
            if option.get("required") is True and name not in {*found, *given} and not has_default:
                yield value, "", f"{path} lacks {self._field(name)}, which the role {self.role} requires"

    def _keys(self, schema: Mapping[str, Any], name: str) -> list[str]:
        return [key for key in below(schema, "properties") if self._variable(key) == name]

    def _variable(self, key: object) -> str:
        return snake_case(str(key)) if self.watch.snake_case_parameters else str(key)

    def _field(self, name: str) -> str:
        first, *others = name.split("_")
        text = first + "".join(word.capitalize() for word in others)
        return text if self.watch.snake_case_parameters and snake_case(text) == name else name

    def stale_path(self, text: object) -> str:
        """Return why a path into an object, such as ``.status.message``, has no value; empty if it has one."""
        found = _FIELD.match(str(text))
        if found is None or self.watch.gvk.is_built_in:
            return ""
        part, name = found.groups()
        if part == "spec":
            is_option = self.arguments is None or self._variable(name) in {
                *self.arguments.options,
                *self.arguments.given,
            }
            return "" if is_option else f"{name} isn't an option of the role {self.role}"
        if not self.watch.manage_status or self.results.write_status or name in _OF_THE_OPERATOR:
            return ""
        if name not in self.watch.status:
            return f"no entry of status in watches.yaml sets {name}"
        stat = self.unreported(self.watch.status[name].text)
        return f"no task of the role {self.role} reports {stat} with set_stats" if stat else ""

    def unreported(self, path: str) -> str:
        """Return the name in a path into the results that no task reports; empty if one does, or may do."""
        found = _STATS.match(path)
        name = (found[1] or found[2]) if found and self.results.are_all else ""
        return "" if name in self.results.names else name


def check_stale_files(
    watches_file: Path,
    watches: Sequence[Watch],
    crds: Iterable[tuple[Path, Mapping[str, Any]]],
    files: ProjectFiles | None,
    environment: Mapping[str, str],
) -> Iterator[Problem]:
    """Yield the differences from the roles of these watches."""
    definitions, entries = list(crds), watch_entries(watches_file, environment)
    kinds = {(each.gvk.group, each.gvk.kind): _kind(each, entries, definitions, environment) for each in watches}
    for kind in kinds.values():
        yield from _check_results(watches_file, kind)
        yield from _check_defaults(kind)
    for file, definition in definitions:
        yield from _check_columns(file, definition, kinds)
    if files is not None:
        defined = {
            (below(each, "spec").get("group"), below(each, "spec", "names").get("kind")) for _, each in definitions
        }
        yield from _check_samples(files.samples, kinds, defined)
        yield from _check_goals(files.demo, kinds)
        for record in (each for path in files.records for each in sorted(path.glob(f"*{SUFFIX}"))):
            yield from _check_record(record, kinds)


def _kind(
    watch: Watch,
    entries: Iterable[LocatedMapping],
    definitions: Iterable[tuple[Path, Mapping[str, Any]]],
    environment: Mapping[str, str],
) -> _Kind:
    gvk = watch.gvk
    entry = next((each for each in entries if (each.get("group", ""), each.get("kind")) == (gvk.group, gvk.kind)), None)
    kind = _Kind(watch, entry, None, None)
    with suppress(ArgumentSpecError):  # reported elsewhere, and a role needs none
        kind.arguments = read_role_arguments(watch, environment)
        kind.results = _Results.of(watch, kind.arguments.role)
    for _, definition in definitions:
        spec = below(definition, "spec")
        if (spec.get("group"), below(spec, "names").get("kind")) == (gvk.group, gvk.kind):
            kind.is_namespaced = spec.get("scope") == "Namespaced" if "scope" in spec else None
            versions = [each for each in listed(spec, "versions") if below(each).get("name") == gvk.version]
            kind.schema = below(*versions[:1], "schema", "openAPIV3Schema") if versions else None
    return kind


def _check_results(file: Path, kind: _Kind) -> Iterator[Problem]:
    """Yield the paths of the watch into results that no task reports."""
    watch, entry = kind.watch, kind.entry
    if entry is None:
        return
    status, ready = below(entry, "status"), below(entry, "ready")
    paths = [(status, f"status.{name}", name, path.text) for name, path in watch.status.items()]
    paths += [
        (ready or entry, f"ready.{name}", name if ready else "ready", path.text) for name, path in watch.ready.items()
    ]
    for mapping, key, name, text in paths:
        if stat := kind.unreported(text):
            why = f"no task of the role {kind.role} reports {stat} with set_stats: report it, or remove this key"
            yield Problem(str(file), line_of(mapping, name), why, Severity.WARNING, str(watch.gvk), key)


def _check_columns(
    file: Path, definition: Mapping[str, Any], kinds: Mapping[tuple[str, str], _Kind]
) -> Iterator[Problem]:
    spec = below(definition, "spec")
    kind = kinds.get((str(spec.get("group")), str(below(spec, "names").get("kind"))))
    for version in listed(spec, "versions") if kind else ():
        for column in listed(version, "additionalPrinterColumns"):
            path = below(column).get("jsonPath")
            if kind and below(version).get("name") == kind.watch.gvk.version and (why := kind.stale_path(path)):
                text = f"the column {column.get('name')} shows {path}, but {why}: remove the column, or change its path"
                yield Problem(str(file), line_of(column, "jsonPath"), text, Severity.WARNING)


def _check_defaults(kind: _Kind) -> Iterator[Problem]:
    """Yield the defaults of a role that no option and no file uses, and those that contradict the argument specs."""
    if kind.arguments is None:
        return
    for file in yaml_files(*_existing(kind.arguments.role, "defaults")):
        try:
            [found] = all_documents(file.read_text(encoding="utf-8")) or [{}]
        except (OSError, ValueError, yaml.YAMLError):  # reported elsewhere
            continue
        for name, value in found.items() if isinstance(found, dict) else ():
            option = kind.arguments.options.get(name)
            specified = None if option is None else option.get("default")
            if option is None and not _is_used(str(name), kind):
                text = f"{name} isn't an option of the role {kind.role}, and no file of the role uses it: remove it"
                yield Problem(str(file), line_of(found, name), text, Severity.WARNING)
            elif specified is not None and not _is_template(value, specified) and str(value) != str(specified):
                text = (
                    f"{name} is {value!r} here, but its default in the argument specs is {specified!r}: make them equal"
                )
                yield Problem(str(file), line_of(found, name), text, Severity.WARNING)


def _is_template(*values: object) -> bool:
    return any("{{" in str(value) or "{%" in str(value) for value in values)


def _is_used(name: str, kind: _Kind) -> bool:
    """Return whether a file of the role, or its playbook, has the name of a variable elsewhere than as a default."""
    if kind.arguments is None:
        return True
    word, definition = re.compile(rf"\b{re.escape(name)}\b"), re.compile(rf"^{re.escape(name)}\s*:", re.MULTILINE)
    files = [each for each in kind.arguments.role.rglob("*") if each.is_file() and each.suffix != ".md"]
    files += [kind.watch.content.path] if isinstance(kind.watch.content, PlaybookContent) else []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError):  # a binary file, for example
            continue
        is_default = file.is_relative_to(kind.arguments.role / "defaults")
        if word.search(definition.sub("", text) if is_default else text):
            return True
    return False


def _check_samples(
    samples: Iterable[Path], kinds: Mapping[tuple[str, str], _Kind], defined: set[tuple[Any, Any]]
) -> Iterator[Problem]:
    groups = {group for group, _ in kinds if "." in group}
    for file in yaml_files(*samples):
        try:
            documents = all_documents(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            text, line = describe_error(error)
            yield Problem(str(file), line, f"the sample can't be read: {text}", Severity.WARNING)
            continue
        for obj in documents:
            if not (isinstance(obj, dict) and obj.get("apiVersion") and obj.get("kind")):
                continue
            gvk = GVK.of(str(obj["apiVersion"]), str(obj["kind"]))
            key = ObjectKey.of_object({"metadata": metadata_of(obj)})
            title, kind = f"{gvk.kind} {key}", kinds.get((gvk.group, gvk.kind))
            if kind is None and ((gvk.group, gvk.kind) in defined or gvk.group in groups):
                text = f"the kind {gvk.kind} of {gvk.api_version} isn't in watches.yaml, so no role reconciles this "
                text += "sample: add the kind, or remove the sample"
                yield Problem(str(file), line_of(obj, "kind"), text, Severity.WARNING, title)
            elif kind is not None:
                spec = below(obj, "spec")
                for mapping, name, text in kind.unknown(spec):
                    place = line_of(mapping, name) or line_of(obj, "spec")
                    yield Problem(str(file), place, f"{text}: change the sample, or the role", Severity.WARNING, title)


def _check_goals(file: Path, kinds: Mapping[tuple[str, str], _Kind]) -> Iterator[Problem]:
    try:
        goals = [each for found in all_documents(file.read_text(encoding="utf-8")) for each in listed(found, "goals")]
    except (OSError, ValueError, yaml.YAMLError):  # not every project has the file, and the demo reports errors
        return
    for goal in (each for each in goals if isinstance(each, dict) and each.get("kind")):
        gvk = GVK.of(str(goal.get("apiVersion")), str(goal["kind"]))
        kind = kinds.get((gvk.group, gvk.kind))
        if kind is None:
            text = (
                f"the kind {gvk.kind} of {gvk.api_version} isn't in watches.yaml, so its goal has no effect: remove it"
            )
            yield Problem(str(file), line_of(goal, "kind"), text, Severity.WARNING)
            continue
        paths = [(goal, "columns", each) for each in listed(goal, "columns")]
        paths += [(each, key, below(each).get(key)) for each in listed(goal, "until") for key in ("path", "equals")]
        for mapping, key, path in paths:
            if str(path).startswith("$") and (why := kind.stale_path(path)):
                text = f"the goal of {gvk.kind} has the path {path}, but {why}: change the goal"
                yield Problem(str(file), line_of(below(mapping), key), text, Severity.WARNING)


def _check_record(file: Path, kinds: Mapping[tuple[str, str], _Kind]) -> Iterator[Problem]:
    try:
        record = read_record(file)
    except RecordError as error:
        yield Problem(str(file), None, str(error).removeprefix(f"{file}: "), Severity.WARNING)
        return
    gvk = GVK.of_object(record.head["object"])
    kind = kinds.get((gvk.group, gvk.kind))
    if kind is None:
        text = f"records a run of {gvk.kind} of {gvk.api_version}, which isn't in watches.yaml: remove the record"
        yield Problem(str(file), None, text, Severity.WARNING)
    elif reasons := _misfits(record, kind):
        text = f"records a run of an older role {kind.role}: {'; '.join(reasons)}. {REPLACE_RECORD}"
        yield Problem(str(file), None, text, Severity.WARNING)


def misfits(
    record: StoredRecord,
    watch: Watch,
    crds: Iterable[tuple[Path, Mapping[str, Any]]],
    environment: Mapping[str, str],
) -> list[str]:
    """Return how a record of a watch's kind contradicts the role, the CRDs, and the watch of today."""
    return _misfits(record, _kind(watch, (), list(crds), environment))


def _misfits(record: StoredRecord, kind: _Kind) -> list[str]:
    obj, status = record.head["object"], {name: path.text for name, path in kind.watch.status.items()}
    found = [other_scope(ObjectKey.of_object(obj), kind.watch.gvk.kind, is_namespaced=kind.is_namespaced)]
    version = GVK.of_object(obj).version
    if version != kind.watch.gvk.version:
        found.append(f"its object has the version {version}, watches.yaml has {kind.watch.gvk.version}")
    before = record.head["watch"].get("status")
    if before is not None and before != status:
        names = [name for name in {**before, **status} if before.get(name) != status.get(name)]
        found.append(f"watches.yaml maps other results to the status ({', '.join(names)})")
    found += [text for _, _, text in kind.unknown(below(obj, "spec"))]
    return [text for text in found if text]


def other_scope(key: ObjectKey, kind: str, *, is_namespaced: bool | None) -> str:
    """Return how the name of a kind's object contradicts its scope (None: unknown), an empty string if it doesn't."""
    if is_namespaced is False and key.namespace:
        return f"its object is in the namespace {key.namespace}, but {kind} is cluster-scoped"
    return f"its object has no namespace, but {kind} is namespaced" if is_namespaced and not key.namespace else ""
