"""Where the control plane's programs come from: four ways, tried in order for each program.

First what the machine offers (KUBEBUILDER_ASSETS and PATH) if it is new enough, then our cache, then a download of the
official release, then a build from source. A program that one way cannot give comes from the next, and the way says
why in one line. What is downloaded or built ends in the cache whole or not at all, and two processes never fetch it at
the same time. The servers of Kubernetes are only taken from the machine together, because their releases must match.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.workbench.controlplane import build, download
from rolecall.workbench.controlplane.errors import BinariesUnavailableError
from rolecall.workbench.controlplane.file_lock import locked
from rolecall.workbench.controlplane.versions import KUBERNETES, PINS, PROGRAM_NAMES, PROGRAMS, SERVER_NAMES, Program

PINS_FILE = "pins"
PARTIAL_PREFIX = ".partial-"
VERSION_TIMEOUT_SECONDS = 20.0
VERSION_PATTERN = re.compile(r"v?(\d+)\.(\d+)\.\d+")

Programs = dict[str, Path]
Report = Callable[[str], None]
Fetch = Callable[[Sequence[Program], Path, Report], None]

WAYS: tuple[tuple[str, Fetch], ...] = (("Download", download.fetch_programs), ("Build", build.build_programs))


@dataclass(frozen=True)
class Offer:
    """What the machine has: programs that can be used, and for others that are there, why they cannot."""

    programs: Programs = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def cache_root() -> Path:
    """Give the folder of this user under which the programs of all releases are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolecall"


def find_binaries(report: Report, ways: tuple[tuple[str, Fetch], ...] = WAYS) -> Programs:
    """Give the path of every program, fetching what is missing; report hears one line per step."""
    root = cache_root()
    target = root / KUBERNETES
    offer = find_on_machine(os.environ)
    programs = find_in_cache(target) | offer.programs
    if len(programs) == len(PROGRAM_NAMES):
        return programs
    for reason in dict.fromkeys(why for name, why in offer.refused.items() if name not in programs):
        report(reason)
    waiting = "Another process is fetching the control plane's programs; waiting for it"
    with locked(root / ".lock", when_waiting=lambda: report(waiting)):
        programs = find_in_cache(target) | offer.programs
        missing = [program for program in PROGRAMS if program.name not in programs]
        _fetch(missing, target, report, ways)
    return find_in_cache(target) | offer.programs


def find_in_cache(target: Path) -> Programs:
    """Give what earlier fetches left of the releases that we want."""
    pins = target / PINS_FILE
    if not pins.is_file() or pins.read_text() != PINS:
        return {}
    programs = {name: target / name for name in PROGRAM_NAMES}
    return {name: path for name, path in programs.items() if os.access(path, os.X_OK)}


def _fetch(missing: Sequence[Program], target: Path, report: Report, ways: tuple[tuple[str, Fetch], ...]) -> None:
    """Take each program from the first way that gives it."""
    for left_over in target.parent.glob(f"{PARTIAL_PREFIX}*"):
        shutil.rmtree(left_over)
    reasons = []
    for name, fetch in ways:
        if not missing:
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=PARTIAL_PREFIX) as partial:
            try:
                fetch(missing, Path(partial), report)
            except BinariesUnavailableError as error:
                reasons.append(f"{name}: {error}")
                report(f"{name} failed: {error}")
            missing = [program for program in missing if not _install(program.name, Path(partial), target)]
    if missing:
        names = ", ".join(program.name for program in missing)
        raise BinariesUnavailableError("\n".join([f"these programs are missing and cannot be had: {names}", *reasons]))


def _install(name: str, partial: Path, target: Path) -> bool:
    """Move a program into the cache if it was fetched; tell whether it was."""
    if not (partial / name).is_file():
        return False
    pins = target / PINS_FILE
    if not pins.is_file() or pins.read_text() != PINS:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        (partial / PINS_FILE).write_text(PINS)
        (partial / PINS_FILE).replace(pins)
    (partial / name).chmod(0o755)
    (partial / name).replace(target / name)
    return True


def find_on_machine(environment: Mapping[str, str]) -> Offer:
    """Look for programs in KUBEBUILDER_ASSETS and on PATH, and ask each for its release."""
    folders = os.pathsep.join(filter(None, (environment.get("KUBEBUILDER_ASSETS"), environment.get("PATH"))))
    offer, servers = Offer(), set()
    for program in PROGRAMS:
        if (found := shutil.which(program.name, path=folders)) is None:
            continue
        path = Path(found).absolute()
        version = installed_version(path)
        if version is None or version < program.oldest:
            offer.refused[program.name] = _too_old(program, path, version)
            continue
        offer.programs[program.name] = path
        if program.name in SERVER_NAMES:
            servers.add(version)
    return offer if len(servers) <= 1 and offer.programs.keys() >= SERVER_NAMES else _without_servers(offer, servers)


def _without_servers(offer: Offer, releases: set[tuple[int, int]]) -> Offer:
    """Leave out the servers of Kubernetes, which are not all there or of different releases."""
    programs = {name: path for name, path in offer.programs.items() if name not in SERVER_NAMES}
    reason = "The Kubernetes programs on PATH are of different releases; using our own programs"
    mixed = dict.fromkeys(SERVER_NAMES, reason) if len(releases) > 1 else {}
    return Offer(programs, mixed | offer.refused)


def _too_old(program: Program, path: Path, version: tuple[int, int] | None) -> str:
    found = "an unknown release" if version is None else "release {}.{}".format(*version)
    return f"{path} is {found}, expected at least {'{}.{}'.format(*program.oldest)}; using our own {program.name}"


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
