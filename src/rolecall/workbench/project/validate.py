"""Checks a whole project and reports all problems together.

The files are found as ``rolecall run`` finds them: roles and playbooks from the working directory and the environment.
ansible-core reads them in a separate process, ``ansible_check``.

A difference between the CRD of a watched kind and its watch or argument specs is a warning: a CRD may be older or newer
than the role on purpose, and arguments may come from elsewhere. Kinds without a CRD in the given files are skipped.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rolecall.kube.references import GVK
from rolecall.runner.config.ansible_config import ROLES_PATH, roles_path
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch, parse_watches
from rolecall.runner.config.yaml_reader import (
    ConfigurationError,
    all_documents,
    describe_error,
)
from rolecall.runner.runs.runner_process import COLLECTIONS
from rolecall.runner.runs.variables import is_reserved, object_variable, snake_case
from rolecall.workbench.project.argument_specs import ArgumentSpecError, read_role_arguments
from rolecall.workbench.project.crd_files import CrdError, CrdFile
from rolecall.workbench.project.lost_variables import IGNORED
from rolecall.workbench.project.problems import Problem, Severity, line_of, watch_entries
from rolecall.workbench.project.stale_files import ProjectFiles, check_stale_files
from rolecall.workbench.project.status_schema import check_status
from rolecall.workbench.yaml_files import below, listed, yaml_files

_CHECK = "rolecall.workbench.project.ansible_check"
_LAST_LINES = 5
_FIELDS = ("properties", "spec", "properties")
"""Where a schema has the fields of the spec."""

_IMAGE_HOME = "/opt/ansible/"
"""The directory of the image that usually contains the files of a project."""
_IMAGE_PATH = re.compile(rf"""\b(?:role|playbook)["']?\s*:\s*["']?({_IMAGE_HOME}([^\s"',}}]+))""")


@dataclass(frozen=True, slots=True)
class CrdFiles:
    """The CRDs in files, each with its file, and the problems of the files."""

    found: tuple[tuple[Path, Mapping[str, Any]], ...]
    problems: tuple[Problem, ...]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "CrdFiles":
        """Read these files, and every YAML file in these directories."""
        found: list[tuple[Path, Mapping[str, Any]]] = []
        problems: list[Problem] = []
        for file in yaml_files(*paths):
            try:
                documents = all_documents(file.read_text(encoding="utf-8"))
            except (yaml.YAMLError, ValueError, OSError) as error:
                text, line = describe_error(error)
                problems.append(Problem(str(file), line, text))
                continue
            found += [
                (file, each)
                for each in documents
                if isinstance(each, dict) and each.get("kind") == "CustomResourceDefinition"
            ]
        return cls(tuple(found), tuple(problems))

    def schemas(self) -> dict[GVK, Mapping[str, Any]]:
        """Return the schema of each version of each kind."""
        return {
            GVK(str(group), str(version.get("name")), str(kind)): schema
            for _, definition in self.found
            for group, kind in [_names(definition)]
            for version in _versions(definition)
            if (schema := below(version, "schema", "openAPIV3Schema"))
        }

    def check(self, watch: Watch, environment: Mapping[str, str]) -> Iterator[Problem]:
        """Yield the differences to a watch."""
        for file, definition in self.found:
            if _names(definition) == (watch.gvk.group, watch.gvk.kind):
                yield from _check(watch, file, definition, environment)


def _warning(file: Path, value: Mapping[str, Any], key: str, message: str) -> Problem:
    """Return a warning about a key of a mapping."""
    return Problem(str(file), line_of(value, key), message, Severity.WARNING)


def _check(
    watch: Watch, file: Path, definition: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[Problem]:
    versions = _versions(definition)
    version = next((each for each in versions if each.get("name") == watch.gvk.version), None)
    if version is None or version.get("served") is False:
        names = ", ".join(str(each.get("name")) for each in versions if each.get("served") is not False)
        text = f"the watched version {watch.gvk.version!r} is not served; served: {names}"
        yield _warning(file, definition["spec"], "versions", text)
        return
    schema = below(version, "schema", "openAPIV3Schema")
    if watch.manage_status and below(version, "subresources").get("status") is None:
        text = f"{watch.gvk.kind} has no status subresource, but manageStatus is true"
        yield _warning(file, version, "subresources", text)
    elif watch.manage_status and schema:
        yield from (_warning(file, place, "", text) for place, text in check_status(watch, schema))
    yield from _ignored_fields(watch, file, below(schema, *_FIELDS))
    yield from _compare(watch, file, environment)


def _variables_of(watch: Watch, fields: Iterable[str], *, finalizing: bool = False) -> dict[str, str]:
    """Return the variables that a spec can set, with the names of their fields."""
    names = {snake_case(key) if watch.snake_case_parameters else key: key for key in fields}
    declared = watch.declared_for(finalizing=finalizing)
    return {name: key for name, key in names.items() if declared is None or name in declared}


def _ignored_fields(watch: Watch, file: Path, fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the fields whose variables Ansible overrides, or that the operator rejects."""
    for name, key in _variables_of(watch, fields).items():
        if name in IGNORED:
            text = f"Ansible overrides the variable {name}, so that the role never sees this field: rename it, or read "
            yield _warning(file, fields, key, f"spec.{key}: {text}{object_variable(watch.gvk)}.spec.{key}")
        elif is_reserved(name) and name not in watch.allow_variables:
            text = f"the operator rejects objects with this field, because Ansible itself acts on the variable {name}"
            text += ": rename it, or add it to allowVariables in watches.yaml"
            yield _warning(file, fields, key, f"spec.{key}: {text}")


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
            yield Problem(
                str(file),
                found.line,
                f"{found.path}: {found.text}: remove the field, or declare the argument",
                Severity.WARNING,
            )


def _names(definition: Mapping[str, Any]) -> tuple[object, object]:
    """Return the group and the kind."""
    return below(definition, "spec").get("group"), below(definition, "spec", "names").get("kind")


def _versions(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in listed(definition, "spec", "versions") if isinstance(each, dict)]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check: how many kinds and contents were checked, and the problems, ordered by file and line."""

    kinds: int
    contents: int
    problems: tuple[Problem, ...]


def validate(
    watches_file: Path,
    environment: Mapping[str, str],
    definitions: Iterable[Path],
    others: Iterable[Problem] = (),
    files: ProjectFiles | None = None,
) -> Report:
    """Check a watches file, its roles and playbooks, the CRDs of its kinds in these files and directories, and others.

    The report contains the problems that others found, too. Raise ConfigurationError if the process that runs
    ansible-core fails.
    """
    with tempfile.TemporaryDirectory(prefix="rolecall-validate-") as directory:
        file, in_image = _in_checkout(watches_file, Path(directory))
        parsed = parse_watches(file, environment)
    contents = list(dict.fromkeys(content for watch in parsed.watches for content in _contents(watch)))
    crds = CrdFiles.read(definitions)
    in_file = [_of_the_file(watches_file, error, file) for error in (*parsed.errors, *parsed.unknown_keys)]
    problems = [
        *in_image,
        *_with_duplicate_kinds(watches_file, in_file, environment),
        *_check_watches(watches_file, parsed.watches, environment),
        *_check_contents(parsed.watches, crds, environment),
        *crds.problems,
        *(problem for watch in parsed.watches for problem in crds.check(watch, environment)),
        *others,
        *check_stale_files(watches_file, parsed.watches, crds.found, files, environment),
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


def _of_the_file(file: Path, error: ConfigurationError, parsed: Path) -> Problem:
    """Return the problem for an error in a file, of which ``parsed`` can be a copy."""
    entry = error.place.removeprefix(str(parsed)).removeprefix(": ")
    is_missing = error.key.split(".")[-1] in ("role", "playbook") and " not found" in error.message
    message = error.message + (", so its tasks were not checked" if is_missing else "")
    return Problem(str(file), error.line, message, entry=entry, key=error.key)


def _check_watches(file: Path, watches: Iterable[Watch], environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the watches whose status Kubernetes manages, finalizers with selectors, and variables without effect."""
    for watch in watches:
        problem = partial(Problem, str(file), severity=Severity.WARNING, entry=str(watch.gvk))
        if watch.status_warning:
            yield problem(_line_of(file, watch.gvk, environment), watch.status_warning, key="manageStatus")
        if watch.finalizer and watch.selector.requirements:
            name = watch.finalizer.name
            text = f"operators with the finalizer {name} need disjoint selectors, and cleanups that can be repeated"
            yield problem(_line_of(file, watch.gvk, environment), text, key="finalizer.name")
        for name in sorted(IGNORED & {*watch.variables, *(watch.finalizer.variables if watch.finalizer else ())}):
            text = f"Ansible overrides the variable {name}, so that the role never sees this value: rename it"
            yield problem(_line_of(file, watch.gvk, environment), text, key=f"vars.{name}")


def _line_of(file: Path, gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the line of the entry of a kind."""
    lines = (
        each.line
        for each in watch_entries(file, environment)
        if tuple(each.get(key, "") for key in ("group", "version", "kind")) == (gvk.group, gvk.version, gvk.kind)
    )
    return next(lines, None)


def _with_duplicate_kinds(file: Path, found: list[Problem], environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of a watches file; those of a group and kind with two watches name both lines."""
    first: dict[tuple[Any, Any], int] = {}
    duplicates: dict[int | None, tuple[str, int]] = {}
    for entry in watch_entries(file, environment):
        key = (entry.get("group", ""), entry.get("kind"))
        if key in first and key[1]:
            duplicates[entry.lines["kind"]] = (f"{key[1]}.{key[0]}".rstrip("."), first[key])
        first.setdefault(key, entry.line)
    for problem in found:
        if problem.key == "kind" and problem.line in duplicates:
            _, line = duplicates.pop(problem.line)
            yield replace(problem, message=f"{problem.message}, first in line {line}")
        else:
            yield problem
    for number, (kind, line) in duplicates.items():
        text = (
            f"{kind} is watched already, by the entry in line {line}: its objects are the same in each version, so "
            "that two runs of an object would overlap. Keep one entry"
        )
        yield Problem(str(file), number, text, key="kind")


def _in_checkout(file: Path, directory: Path) -> tuple[Path, list[Problem]]:
    """Return a watches file in which paths of the image are those of the working directory, with a warning for each.

    Without such paths, this is the file itself.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):  # reported when the file is parsed
        return file, []
    problems = []
    for index, line in enumerate(lines):
        found = None if line.lstrip().startswith("#") else _IMAGE_PATH.search(line)
        if found and not Path(found[1]).exists() and Path(found[2]).exists():
            lines[index] = line.replace(found[1], str(Path.cwd() / found[2]))
            text = (
                f"{found[1]} exists only in an image, so that 'rolecall run' doesn't start here: {found[2]} of this "
                "directory was checked in its place"
            )
            problems.append(Problem(str(file), index + 1, text, Severity.WARNING))
    if not problems:
        return file, []
    copy = directory / file.name
    copy.write_text("".join(lines), encoding="utf-8")
    return copy, problems


def _origins(watch: Watch, content: Content, schemas: Mapping[GVK, Mapping[str, Any]]) -> dict[str, str]:
    """Return the extra vars of a content that are known without an object, with their origins."""
    is_only_finalizer = content != watch.content
    variables = {**watch.variables, **(watch.finalizer.variables if watch.finalizer and is_only_finalizer else {})}
    fields = below(schemas.get(watch.gvk), *_FIELDS)
    names = _variables_of(watch, fields, finalizing=is_only_finalizer)
    return {
        **{name: f"the field spec.{key} of {watch.gvk.kind}" for name, key in names.items()},
        **dict.fromkeys(variables, f"vars of {watch.gvk.kind} in watches.yaml"),
        **dict.fromkeys(("ansible_operator_meta", object_variable(watch.gvk)), "the operator"),
    }


def _check_contents(watches: Iterable[Watch], crds: CrdFiles, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Check roles and playbooks with ansible-core, with the settings and a working directory like those of a run."""
    schemas = crds.schemas()
    asked = [
        {
            "role" if isinstance(content, RoleContent) else "playbook": str(content.path),
            "variables": _origins(watch, content, schemas),
        }
        for watch in watches
        for content in _contents(watch)
    ]
    if not asked:
        return
    known = [(gvk.api_version, gvk.kind, schema) for gvk, schema in schemas.items()]
    question = {"contents": asked, "schemas": known, "directory": str(Path.cwd())}
    python_path = [part for part in (environment.get("PYTHONPATH"), str(COLLECTIONS)) if part]
    with tempfile.TemporaryDirectory(prefix="rolecall-validate-") as directory:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _CHECK],
            input=json.dumps(question, default=str).encode(),
            capture_output=True,
            cwd=directory,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(python_path),
                "ANSIBLE_LOCAL_TEMP": directory,
                ROLES_PATH: roles_path(Path.cwd(), environment),
            },
            check=False,
        )
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").splitlines()[-_LAST_LINES:])
        raise ConfigurationError(f"the check with ansible-core failed (exit code {done.returncode}): {said}")
    for found in json.loads(done.stdout):
        # Omit the temporary directory, which isn't part of the project.
        message = found["message"].replace(f"{directory}/roles:", "").replace(f":{directory}", "")
        yield Problem(found["file"], found["line"], message, Severity(found["severity"]))
