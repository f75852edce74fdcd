"""Checks a whole project and reports all problems at once.

The files are found as ``rolecall run`` finds them: roles and playbooks from the working directory and the environment.
ansible-core reads them in a process of its own, ``ansible_check``.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rolecall.runner.config.ansible_defaults import ROLES_PATH, roles_path
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.errors import ConfigurationError
from rolecall.runner.config.watches import Watch, parse_watches
from rolecall.runner.runs.runner_process import COLLECTIONS
from rolecall.workbench.project.crds import CrdFiles
from rolecall.workbench.project.problem import Problem, Severity

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
        *_check_contents(contents, environment),
        *crds.problems,
        *(problem for watch in parsed.watches for problem in crds.check(watch)),
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
