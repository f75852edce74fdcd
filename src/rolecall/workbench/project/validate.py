"""Checks a whole project and reports all problems together.

The files are found as ``rolecall run`` finds them: roles and playbooks from the working directory and the environment.
ansible-core reads them in a separate process, ``ansible_check``.

A difference between the CRD of a watched kind and its watch or argument specs is a warning: a CRD may be older or newer
than the role on purpose, and arguments may come from elsewhere. Kinds without a CRD in the given files are skipped.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.ansible_config import ROLES_PATH, roles_path
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch, parse_watches
from rolecall.runner.config.yaml_reader import (
    ConfigurationError,
    LocatedMapping,
    all_documents,
    describe_error,
)
from rolecall.runner.runs.runner_process import COLLECTIONS
from rolecall.workbench.project.argument_specs import ArgumentSpecError, read_role_arguments
from rolecall.workbench.project.crd_files import CrdError, CrdFile, yaml_files


class Severity(StrEnum):
    """An error stops the operator, makes runs fail or is a mistake; a warning may be intended."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file; ``line`` counts from 1 and is None for a problem of the whole file.

    ``entry`` (of the watches file) and ``key`` (a path of keys) can be empty.
    """

    file: str
    line: int | None
    message: str
    severity: Severity = Severity.ERROR
    entry: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """The file and the line, in the format that editors and terminals turn into links."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def text(self) -> str:
        """The entry, the key and the message, in one line."""
        key = f"key {self.key}" if self.key else ""
        where = ", ".join(part for part in (self.entry, key) if part)
        return f"{where}: {self.message}" if where else self.message

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


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
        for file in yaml_files(paths):
            try:
                documents = all_documents(file.read_text(encoding="utf-8"))
            except (yaml.YAMLError, ValueError, OSError) as error:
                text, line = describe_error(error)
                problems.append(Problem(str(file), line, text))
                continue
            found += [_Located(file, each) for each in documents if _is_definition(each)]
        return cls(tuple(found), tuple(problems))

    def check(self, watch: Watch, environment: Mapping[str, str]) -> Iterator[Problem]:
        """Yield the differences to a watch."""
        for definition in self.found:
            spec = definition.below("spec")
            if spec and _names(spec) == (watch.gvk.group, watch.gvk.kind):
                yield from _check(watch, spec, environment)


def _check(watch: Watch, spec: _Located, environment: Mapping[str, str]) -> Iterator[Problem]:
    versions = [_Located(spec.file, each) for each in spec.value.get("versions") or [] if isinstance(each, dict)]
    version = next((each for each in versions if each.value.get("name") == watch.gvk.version), None)
    if version is None or version.value.get("served") is False:
        names = ", ".join(str(each.value.get("name")) for each in versions if each.value.get("served") is not False)
        yield spec.warning("versions", f"the watched version {watch.gvk.version!r} is not served; served: {names}")
        return
    if watch.manage_status and version.below("subresources", "status") is None:
        yield version.warning("subresources", f"{watch.gvk.kind} has no status subresource, but manageStatus is true")
    yield from _compare(watch, spec.file, environment)


def _compare(watch: Watch, file: Path, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the changes that ``rolecall generate crds`` would make, and the fields that aren't arguments.

    Unusable argument specs are reported elsewhere, and a role needs none.
    """
    with suppress(ArgumentSpecError):
        arguments = read_role_arguments(watch, environment)
        try:
            result = CrdFile.read(file).sync(watch, arguments)
        except (ArgumentSpecError, CrdError) as error:
            yield Problem(str(file), None, str(error), Severity.WARNING)
            return
        for found in result.changes:
            text = f"{found.path} differs from the role's arguments ({found.text}): run 'rolecall generate crds'"
            yield Problem(str(file), found.line, text, Severity.WARNING)
        for found in result.unknown:
            yield Problem(str(file), found.line, f"{found.path}: {found.text}", Severity.WARNING)


def _is_definition(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"


def _names(spec: _Located) -> tuple[object, object]:
    names = spec.below("names")
    return spec.value.get("group"), names.value.get("kind") if names else None


_CHECK = "rolecall.workbench.project.ansible_check"
_LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check: how many kinds and contents were checked, and the problems, ordered by file and line."""

    kinds: int
    contents: int
    problems: tuple[Problem, ...]


def validate(watches_file: Path, environment: Mapping[str, str], definitions: Iterable[Path]) -> Report:
    """Check a watches file, its roles and playbooks, and the CRDs of its kinds in these files and directories.

    Raise ConfigurationError if the process that runs ansible-core fails.
    """
    parsed = parse_watches(watches_file, environment)
    contents = list(dict.fromkeys(content for watch in parsed.watches for content in _contents(watch)))
    crds = CrdFiles.read(definitions)
    problems = [
        *(_of_the_file(watches_file, error) for error in (*parsed.errors, *parsed.unknown_keys)),
        *_check_built_in_kinds(watches_file, parsed.watches),
        *_check_contents(contents, environment),
        *crds.problems,
        *(problem for watch in parsed.watches for problem in crds.check(watch, environment)),
    ]
    here = f"{Path.cwd()}{os.sep}"
    shown = {
        replace(each, file=each.file.removeprefix(here), message=each.message.replace(here, "")) for each in problems
    }
    ordered = sorted(shown, key=lambda each: (each.file != str(watches_file), each.file, each.line or 0, each.text))
    return Report(len(parsed.watches), len(contents), tuple(ordered))


def _contents(watch: Watch) -> Iterator[Content]:
    yield watch.content
    if watch.finalizer and watch.finalizer.content:
        yield watch.finalizer.content


def _of_the_file(file: Path, error: ConfigurationError) -> Problem:
    entry = error.place.removeprefix(str(file)).removeprefix(": ")
    return Problem(str(file), error.line, error.message, entry=entry, key=error.key)


def _check_built_in_kinds(file: Path, watches: Iterable[Watch]) -> Iterator[Problem]:
    for watch in watches:
        if watch.status_warning:
            yield Problem(str(file), None, watch.status_warning, Severity.WARNING, str(watch.gvk), "manageStatus")


def _check_contents(contents: list[Content], environment: Mapping[str, str]) -> Iterator[Problem]:
    """Check roles and playbooks with ansible-core, with the settings and a working directory like those of a run."""
    if not contents:
        return
    asked = [{"role" if isinstance(each, RoleContent) else "playbook": str(each.path)} for each in contents]
    python_path = [part for part in (environment.get("PYTHONPATH"), str(COLLECTIONS)) if part]
    with tempfile.TemporaryDirectory(prefix="rolecall-validate-") as folder:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _CHECK],
            input=json.dumps(asked).encode(),
            capture_output=True,
            cwd=folder,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(python_path),
                "ANSIBLE_LOCAL_TEMP": folder,
                ROLES_PATH: roles_path(Path.cwd(), environment),
            },
            check=False,
        )
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").splitlines()[-_LAST_LINES:])
        raise ConfigurationError(f"the check with ansible-core failed (exit code {done.returncode}): {said}")
    for found in json.loads(done.stdout):
        # The temporary directory in the search path would only confuse.
        message = found["message"].replace(f"{folder}/roles:", "").replace(f":{folder}", "")
        yield Problem(found["file"], found["line"], message, Severity(found["severity"]))
