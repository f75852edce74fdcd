"""Where the control plane's programs come from: four ways, tried in order.

First what the machine offers (KUBEBUILDER_ASSETS and PATH, if all of it is there and new enough), then our cache,
then a download of the official releases, then a build from source. What is downloaded or built ends in the cache
whole or not at all, and two processes never fetch it at the same time. A way that fails says why in one line, and the
next one follows at once. The two long ways have modules of their own: rolecall.controlplane.download and
rolecall.controlplane.build.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rolecall.controlplane import build, download
from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.file_lock import locked
from rolecall.controlplane.versions import KUBERNETES, PINS, PROGRAM_NAMES, PROGRAMS, Program

PINS_FILE = "pins"
PARTIAL_PREFIX = ".partial-"
VERSION_TIMEOUT_SECONDS = 20.0
VERSION_PATTERN = re.compile(r"v?(\d+)\.(\d+)\.\d+")

Programs = dict[str, Path]
Report = Callable[[str], None]
Fetch = Callable[[Path, Report], None]

WAYS: tuple[tuple[str, Fetch], ...] = (("Download", download.fetch_programs), ("Build", build.build_programs))


def cache_root() -> Path:
    """Give the folder of this user under which the programs of all releases are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolecall"


def find_binaries(report: Report, ways: tuple[tuple[str, Fetch], ...] = WAYS) -> Programs:
    """Give the path of every program, fetching them first if need be; report hears one line per step."""
    if programs := find_on_machine(os.environ, report):
        return programs
    root = cache_root()
    target = root / KUBERNETES
    if programs := find_in_cache(target):
        return programs
    waiting = "Another process is fetching the control plane's programs; waiting for it"
    with locked(root / ".lock", when_waiting=lambda: report(waiting)):
        return find_in_cache(target) or _fetch(root, target, report, ways)


def find_in_cache(target: Path) -> Programs | None:
    """Give what an earlier fetch left, if it is complete and of the releases that we want."""
    pins = target / PINS_FILE
    programs = {name: target / name for name in PROGRAM_NAMES}
    if not pins.is_file() or pins.read_text() != PINS:
        return None
    return programs if all(os.access(path, os.X_OK) for path in programs.values()) else None


def _fetch(root: Path, target: Path, report: Report, ways: tuple[tuple[str, Fetch], ...]) -> Programs:
    for left_over in root.glob(f"{PARTIAL_PREFIX}*"):
        shutil.rmtree(left_over)
    reasons = []
    for name, fetch in ways:
        with tempfile.TemporaryDirectory(dir=root, prefix=PARTIAL_PREFIX) as partial:
            try:
                fetch(Path(partial), report)
            except BinariesUnavailableError as error:
                reasons.append(f"{name}: {error}")
                report(f"{name} is not possible: {error}")
                continue
            return _install(Path(partial), target)
    raise BinariesUnavailableError("the control plane's programs could not be had:\n" + "\n".join(reasons))


def _install(partial: Path, target: Path) -> Programs:
    """Move what was fetched into the cache; the pins, which make it count, come last."""
    target.mkdir(parents=True, exist_ok=True)
    (target / PINS_FILE).unlink(missing_ok=True)
    for name in PROGRAM_NAMES:
        (partial / name).chmod(0o755)
        (partial / name).replace(target / name)
    pins = partial / PINS_FILE
    pins.write_text(PINS)
    pins.replace(target / PINS_FILE)
    return {name: target / name for name in PROGRAM_NAMES}


def find_on_machine(environment: Mapping[str, str], report: Report) -> Programs | None:
    """Give the programs that KUBEBUILDER_ASSETS and PATH offer, if none is missing and none too old."""
    folders = os.pathsep.join(filter(None, (environment.get("KUBEBUILDER_ASSETS"), environment.get("PATH"))))
    found = {name: shutil.which(name, path=folders) for name in PROGRAM_NAMES}
    programs = {name: Path(path).absolute() for name, path in found.items() if path}
    if len(programs) < len(PROGRAM_NAMES):
        return None
    servers = set()
    for program in PROGRAMS:
        version = installed_version(programs[program.name])
        if version is None or version < program.oldest:
            report(_too_old(program, programs[program.name], version))
            return None
        if program.name.startswith("kube-"):
            servers.add(version)
    if len(servers) > 1:
        report("The Kubernetes programs on PATH are of different releases; using our own programs")
        return None
    return programs


def _too_old(program: Program, path: Path, version: tuple[int, int] | None) -> str:
    found = "an unknown release" if version is None else "release {}.{}".format(*version)
    return f"{path} is {found}, expected at least {'{}.{}'.format(*program.oldest)}; using our own programs"


def installed_version(path: Path) -> tuple[int, int] | None:
    """Ask a program for its release: major and minor number; None if it does not say."""
    arguments = ["version", "--client"] if path.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION_PATTERN.search(answer.stdout)
    return (int(match[1]), int(match[2])) if match else None
