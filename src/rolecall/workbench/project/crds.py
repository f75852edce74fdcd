"""Compares the CRDs of the watched kinds with the watches and with the argument specs of the roles.

A difference is a warning: a CRD may be older or newer than the role on purpose, and arguments may come from elsewhere.
Kinds without a CRD in the given files are skipped.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.config.yaml_loader import LocatedMapping, all_documents, describe_error, first_document
from rolecall.runner.runs.snake_case import snake_case
from rolecall.workbench.project.problem import Problem, Severity

_TYPES = {
    "string": ("str", "path", "raw", "any"),
    "integer": ("int", "raw", "any"),
    "number": ("float", "int", "raw", "any"),
    "boolean": ("bool", "raw", "any"),
    "object": ("dict", "json", "raw", "any"),
    "array": ("list", "raw", "any"),
}
"""The argument types that can take a value of each schema type; the first one is recommended."""


@dataclass(frozen=True, slots=True)
class _Located:
    """A mapping in a file, with its place."""

    file: Path
    value: Mapping[str, Any]

    def warning(self, key: str, message: str) -> Problem:
        """Return a warning about a key of the mapping, or about the mapping if it lacks the key."""
        line = None
        if isinstance(self.value, LocatedMapping):
            line = self.value.lines.get(key, self.value.line)
        return Problem(str(self.file), line, message, Severity.WARNING)

    def below(self, *keys: str) -> "_Located | None":
        """Return the mapping under these keys, or None."""
        value: Any = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return _Located(self.file, value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class CrdFiles:
    """The CRDs in files, and the problems of the files."""

    found: tuple[_Located, ...]
    problems: tuple[Problem, ...]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "CrdFiles":
        """Read these files, and every YAML file in these directories."""
        found: list[_Located] = []
        problems: list[Problem] = []
        for file in [file for path in paths for file in _files(path)]:
            try:
                documents = all_documents(file.read_text(encoding="utf-8"))
            except (yaml.YAMLError, ValueError, OSError) as error:
                text, line = describe_error(error)
                problems.append(Problem(str(file), line, text))
                continue
            found += [_Located(file, each) for each in documents if _is_definition(each)]
        return cls(tuple(found), tuple(problems))

    def check(self, watch: Watch) -> Iterator[Problem]:
        """Yield the differences to a watch."""
        for definition in self.found:
            spec = definition.below("spec")
            if spec and _names(spec) == (watch.gvk.group, watch.gvk.kind):
                yield from _check(watch, spec)


def _check(watch: Watch, spec: _Located) -> Iterator[Problem]:
    versions = [_Located(spec.file, each) for each in spec.value.get("versions") or [] if isinstance(each, dict)]
    version = next((each for each in versions if each.value.get("name") == watch.gvk.version), None)
    if version is None or version.value.get("served") is False:
        names = ", ".join(str(each.value.get("name")) for each in versions if each.value.get("served") is not False)
        yield spec.warning("versions", f"the watched version {watch.gvk.version!r} is not served; served: {names}")
        return
    if watch.manage_status and version.below("subresources", "status") is None:
        yield version.warning("subresources", f"{watch.gvk.kind} has no status subresource, but manageStatus is true")
    properties = version.below("schema", "openAPIV3Schema", "properties", "spec")
    options = _options(watch)
    if properties and options and properties.below("properties"):
        yield from _compare(watch, properties, options)


def _compare(watch: Watch, schema: _Located, options: _Located) -> Iterator[Problem]:
    fields = schema.below("properties")
    assert fields  # noqa: S101 - the caller looked
    required = schema.value.get("required") or []
    names = {snake_case(name) if watch.snake_case_parameters else name: name for name in fields.value}
    for name, field in names.items():
        described, option = fields.value[field], options.value.get(name)
        if option is None:
            text = f"spec.{field} is not an argument of the role: {name!r} is missing in {options.file}"
            yield fields.warning(field, text)
        elif isinstance(described, dict) and isinstance(option, dict):
            place = _Located(options.file, options.value)
            yield from (place.warning(name, text) for text in _differences(field, described, option, required))
    for name in options.value:
        if name not in names and name not in watch.variables and not name.startswith(("_", "ansible_operator_meta")):
            kind = watch.gvk.kind
            yield options.warning(name, f"argument {name!r} is not a field of the spec of {kind} in {fields.file}")


def _differences(
    field: str, described: Mapping[str, Any], option: Mapping[str, Any], required: list[str]
) -> Iterator[str]:
    expected = _TYPES.get(str(described.get("type")))
    found = option.get("type", "str")
    if expected and found not in expected:
        text = f"spec.{field} has the type {described['type']!r}: expected the type {expected[0]!r}, found {found!r}"
        yield text
    if option.get("required") is True and field not in required and "default" not in described:
        yield f"the argument is required, but spec.{field} is not"


def _options(watch: Watch) -> _Located | None:
    """Return the argument specs of a watch's role, None if there are none or if they cannot be read."""
    if not isinstance(watch.content, RoleContent):
        return None
    meta = watch.content.path / "meta"
    for name in ("argument_specs.yml", "argument_specs.yaml", "main.yml", "main.yaml"):
        try:
            content = first_document((meta / name).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError, ValueError):
            continue
        found = _Located(meta / name, content) if isinstance(content, dict) else None
        if found and (options := found.below("argument_specs", "main", "options")):
            return options
    return None


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(path for path in path.rglob("*") if path.suffix in (".yml", ".yaml") and path.is_file())


def _is_definition(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"


def _names(spec: _Located) -> tuple[object, object]:
    names = spec.below("names")
    return spec.value.get("group"), names.value.get("kind") if names else None
