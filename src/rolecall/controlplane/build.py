"""Building the control plane's programs from source with Go.

The modules in tools/controlplane pin every source and its sum, so the result does not depend on when or where it is
built, and nothing but Go modules is downloaded. The first build takes minutes, so its progress is told. The version
that the programs report is set while linking, because kubectl refuses a server whose version it cannot read. Called
by rolecall.controlplane.binaries.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.versions import KUBERNETES, KWOK, Program

OLDEST_GO = (1, 26)
PROGRESS_SECONDS = 10.0
ERROR_LINES = 10
SUBMODULES = {"kwok": "kwok"}  # a module of its own: it is built against another release of the Kubernetes libraries
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

Report = Callable[[str], None]


def module_directory() -> Path:
    """Find the pinned modules: beside the package when it is installed, in tools/ of a checkout otherwise."""
    installed = Path(__file__).with_name("modules")
    checkout = Path(__file__).parents[3] / "tools" / "controlplane"
    for directory in (installed, checkout):
        if (directory / "go.mod").is_file():
            return directory
    raise BinariesUnavailableError(
        f"no go.mod found in {installed} nor in {checkout}; a build needs a checkout of rolecall"
    )


def find_go() -> Path:
    """Find a Go that is new enough."""
    path = shutil.which("go")
    if path is None:
        raise BinariesUnavailableError("no 'go' found on PATH; expected Go 1.26 or newer")
    answer = subprocess.run([path, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/")
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_GO:
        raise BinariesUnavailableError(f"{path} is {answer.stdout.strip()!r}; expected Go 1.26 or newer")
    return Path(path)


def linker_flags(program: Program) -> str:
    """Give the linker's flags: no debugging tables, and the version that the program reports."""
    values = {}
    if program.project == "kubernetes":
        major, minor, _ = KUBERNETES.removeprefix("v").split(".", 2)
        for package in VERSION_PACKAGES:
            values[f"{package}.gitVersion"] = KUBERNETES
            values[f"{package}.gitMajor"] = major
            values[f"{package}.gitMinor"] = minor
            values[f"{package}.gitTreeState"] = "clean"
    if program.project == "kwok":
        values["sigs.k8s.io/kwok/pkg/consts.Version"] = KWOK
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def build_programs(programs: Sequence[Program], target: Path, report: Report) -> None:
    """Build programs into the target folder; BinariesUnavailableError if that is not possible."""
    go = find_go()
    modules = module_directory()
    report("Building the control plane's programs from source: about six minutes on two cores the first time")
    started = time.monotonic()
    for project, group in groupby(sorted(programs, key=_project), key=_project):
        progress = _Progress(project, started, report)
        _build(go, modules / SUBMODULES.get(project, "."), list(group), target, progress)
    report(f"Built in {time.monotonic() - started:.0f} s")


def _project(program: Program) -> str:
    return program.project


class _Progress:
    """Tells every few seconds how far the build is."""

    def __init__(self, title: str, started: float, report: Report) -> None:
        self._title = title
        self._started = started
        self._report = report
        self._packages = 0
        self._next = time.monotonic()

    def step(self, line: str) -> None:
        """Count a line of the compiler: a package that it works on, or a module that it downloads."""
        is_download = line.startswith("go: downloading")
        self._packages += not is_download
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            doing = "downloading modules" if is_download else f"{self._packages} packages compiled"
            self._report(f"  {self._title}: {doing}, {time.monotonic() - self._started:.0f} s")


def _build(go: Path, module: Path, programs: list[Program], target: Path, progress: _Progress) -> None:
    """Build the programs of one project together, which keeps all processors busy."""
    output = target / programs[0].name if len(programs) == 1 else target
    command = [str(go), "build", "-v", "-mod=readonly", "-trimpath", f"-ldflags={linker_flags(programs[0])}"]
    command += ["-o", str(output), *(program.go_package for program in programs)]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    with subprocess.Popen(
        command, cwd=module, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = _follow(process, progress)
    if process.returncode != 0:
        tail = "; ".join(lines[-ERROR_LINES:])
        names = ", ".join(program.name for program in programs)
        raise BinariesUnavailableError(f"go build of {names} ended with exit code {process.returncode}: {tail}")


def _follow(process: subprocess.Popen[str], progress: _Progress) -> list[str]:
    """Read the compiler's output to its end; the compiler ends with us."""
    lines = []
    try:
        for line in process.stderr or ():
            lines.append(line.strip())
            progress.step(line)
    except BaseException:
        process.terminate()
        raise
    return lines
