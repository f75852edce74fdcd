"""The sources of the control plane's programs, tried in order for each program.

First come the programs of the machine (KUBEBUILDER_ASSETS and PATH) if they are new enough, then the cache, then a
download of the official release, then a build with Go. Each source that can't provide a program reports the reason in
one line. A program enters the cache as a whole or not at all, and two processes never fetch it at the same time. The
servers of Kubernetes come from the machine only together, because their releases must match.

A control plane has the newest release of Kubernetes that this package knows, or another one of ``RELEASES``: then, its
servers and kubectl have a directory of the cache of their own. etcd and kwok are the same for all releases.

For the build, modules in tools/controlplane pin every source and its checksum, so the result doesn't depend on the time
or the machine. The first build takes minutes. Three measures keep it short: all programs share one module, hence one
version of every library (those of another release of Kubernetes have a module of their own); etcd, which needs few
modules, compiles while those of Kubernetes download; and the build omits debugging tables and inlined code in
Kubernetes. The linker sets the version that the programs report, because kubectl rejects a server whose version it
can't read.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.workbench.controlplane import download
from rolecall.workbench.controlplane.download import (
    KUBERNETES,
    KWOK,
    PROGRAM_NAMES,
    PROGRAMS,
    RELEASES,
    SERVER_NAMES,
    Program,
    minor_version,
    programs_of,
)
from rolecall.workbench.controlplane.errors import BinariesUnavailableError
from rolecall.workbench.controlplane.state import locked

OLDEST_GO = (1, 26)
PROGRESS_SECONDS = 10.0
ERROR_LINES = 10
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
COMPILER_FLAGS = ("all=-dwarf=false", "k8s.io/...=-dwarf=false -l")
MEMORY_FOR_LAZY_COLLECTION = 2 * 2**30  # for each CPU: the largest packages then take 0.7 GiB, else 0.4
LAZY_COLLECTION = {"GOGC": "800"}

Report = Callable[[str], None]
PINS_FILE = "pins"
PARTIAL_PREFIX = ".partial-"
VERSION_TIMEOUT_SECONDS = 20.0
VERSION_VARIABLE = "ROLECALL_KUBERNETES_VERSION"
VERSION_PATTERN = re.compile(r"v?(\d+)\.(\d+)\.\d+")


def kubernetes_release(version: str) -> str:
    """Return the release of a minor version, such as 1.34, or of the release itself. Raise BinariesUnavailableError."""
    found = {release: release for release in RELEASES.values()} | RELEASES
    release = found.get(version) or found.get(f"v{version.removeprefix('v')}")
    if release is None:
        raise BinariesUnavailableError(
            f"Kubernetes {version!r} isn't available for a control plane: choose one of {', '.join(RELEASES)}"
        )
    return release


def module_directory(release: str = KUBERNETES) -> Path:
    """Return the directory of the modules that pin a release of Kubernetes.

    It is next to an installed package, and in tools/ of a checkout.
    """
    part = "" if release == KUBERNETES else "{}.{}".format(*minor_version(release))
    installed = Path(__file__).with_name("modules") / part
    checkout = Path(__file__).parents[4] / "tools" / "controlplane" / part
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


def linker_flags(release: str = KUBERNETES) -> str:
    """Give the linker's flags: no symbol tables, and the versions that the programs report."""
    major, minor = minor_version(release)
    values: dict[str, object] = {"sigs.k8s.io/kwok/pkg/consts.Version": KWOK}
    for package in VERSION_PACKAGES:
        values[f"{package}.gitVersion"] = release
        values[f"{package}.gitMajor"] = major
        values[f"{package}.gitMinor"] = minor
        values[f"{package}.gitTreeState"] = "clean"
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def garbage_collection(memory_bytes: int, processors: int) -> dict[str, str]:
    """Let the compiler collect its garbage rarely if memory suffices for one compiler per CPU."""
    return LAZY_COLLECTION if memory_bytes >= MEMORY_FOR_LAZY_COLLECTION * processors else {}


def build_programs(programs: Sequence[Program], target: Path, report: Report) -> None:
    """Build programs into the target directory; BinariesUnavailableError if that is not possible.

    Those of Kubernetes must have one release.
    """
    release = next((program.release for program in programs if program.project == "kubernetes"), KUBERNETES)
    builder = _Builder(find_go(), release, report)
    report("Building from source: four to eight minutes for all programs on two cores, the first time")
    first = [program for program in programs if program.project == "etcd"]
    steps = [step for step in (first, [program for program in programs if program not in first]) if step]
    listing = _Listing(builder.start("list", "-deps", *(program.go_package for program in programs)))
    try:
        for number, step in enumerate(steps, start=1):
            if step is not first:
                builder.wait_for(listing)
            report(f"Step {number} of {len(steps)}: {', '.join(program.name for program in step)}")
            builder.build(step, target, listing)
    finally:
        listing.stop()
    report(f"Built in {builder.seconds:.0f} s")


class _Listing:
    """Downloads the modules that packages need, in the background, and counts the packages."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.modules = 0
        self.packages = 0
        self.lines: list[str] = []
        self._process = process
        self._threads = [threading.Thread(target=self._count_modules), threading.Thread(target=self._count_packages)]
        for thread in self._threads:
            thread.start()

    def _count_modules(self) -> None:
        for line in self._process.stderr or ():
            self.lines.append(line.strip())
            self.modules += line.startswith("go: downloading")

    def _count_packages(self) -> None:
        packages = sum(1 for _ in self._process.stdout or ())
        self.packages = packages

    def wait(self, seconds: float) -> int | None:
        """Wait for the end; give the exit code, or None if it takes longer."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join()
        return code

    def stop(self) -> None:
        """End it, if it has not ended."""
        with self._process:
            self._process.terminate()
            for thread in self._threads:
                thread.join()


class _Builder:
    """Runs Go in the directory of the module, and reports its progress every few seconds."""

    def __init__(self, go: Path, release: str, report: Report) -> None:
        self._go = go
        self._release = release
        self._module = module_directory(release)
        self._report = report
        self._started = time.monotonic()
        self._compiled = 0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._started

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Go with an environment in which nothing of the user's changes the result."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        defaults = garbage_collection(memory, os.cpu_count() or 1)
        environment = defaults | os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
        command = [str(self._go), arguments[0], "-mod=readonly", *arguments[1:]]
        return subprocess.Popen(
            command, cwd=self._module, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, listing: _Listing) -> None:
        """Wait until all modules are there."""
        while (code := listing.wait(PROGRESS_SECONDS)) is None:
            self._report(f"  {listing.modules} modules downloaded, {self.seconds:.0f} s")
        if code != 0:
            raise _failure("go list", code, listing.lines)

    def build(self, programs: Sequence[Program], target: Path, listing: _Listing) -> None:
        """Build programs together, which keeps all CPUs busy."""
        output = target / programs[0].name if len(programs) == 1 else target
        flags = [
            "-v",
            "-trimpath",
            f"-ldflags={linker_flags(self._release)}",
            *(f"-gcflags={flags}" for flags in COMPILER_FLAGS),
        ]
        process = self.start("build", *flags, "-o", str(output), *(program.go_package for program in programs))
        lines = self._follow(process, listing)
        if process.returncode != 0:
            names = ", ".join(program.name for program in programs)
            raise _failure(f"go build of {names}", process.returncode, lines)

    def _follow(self, process: subprocess.Popen[str], listing: _Listing) -> list[str]:
        """Read the compiler's output to its end; the compiler ends with us."""
        lines: list[str] = []
        following = time.monotonic()
        with process:
            try:
                for line in process.stderr or ():
                    lines.append(line.strip())
                    self._compiled += not line.startswith("go: ")
                    if time.monotonic() >= following:
                        following = time.monotonic() + PROGRESS_SECONDS
                        self._report(f"  {self._progress(listing)}, {self.seconds:.0f} s")
            except BaseException:
                process.terminate()
                raise
        return lines

    def _progress(self, listing: _Listing) -> str:
        if listing.packages:
            return f"{self._compiled} of {listing.packages} packages compiled"
        return f"{self._compiled} packages compiled, {listing.modules} modules downloaded"


def _failure(what: str, code: int, lines: Sequence[str]) -> BinariesUnavailableError:
    return BinariesUnavailableError(f"{what} ended with exit code {code}: {'; '.join(lines[-ERROR_LINES:])}")


Programs = dict[str, Path]
Fetch = Callable[[Sequence[Program], Path, Report], None]

WAYS: tuple[tuple[str, Fetch], ...] = (("Download", download.fetch_programs), ("Build", build_programs))


@dataclass(frozen=True)
class Offer:
    """What the machine has: programs that can be used, and for others that are there, why they cannot."""

    programs: Programs = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)


def cache_root() -> Path:
    """Return the directory of this user's programs of all releases."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolecall"


def find_binaries(report: Report, ways: tuple[tuple[str, Fetch], ...] = WAYS, *, kubernetes: str = "") -> Programs:
    """Give the path of every program, fetching what is missing; report hears one line per step.

    ``kubernetes`` is a minor version. If it is empty, ROLECALL_KUBERNETES_VERSION decides, else it is the newest.
    """
    root = cache_root()
    release = kubernetes_release(kubernetes or os.environ.get(VERSION_VARIABLE) or KUBERNETES)
    wanted = programs_of(release)
    targets = {root / KUBERNETES: [program for program in wanted if not program.is_exact]}
    if release != KUBERNETES:
        targets[root / release] = [program for program in wanted if program.is_exact]
    offer = find_on_machine(os.environ, wanted)
    programs = find_in_cache(targets) | offer.programs
    if len(programs) == len(PROGRAM_NAMES):
        return programs
    for reason in dict.fromkeys(why for name, why in offer.rejected.items() if name not in programs):
        report(reason)
    waiting = "Another process is fetching the control plane's programs; waiting for it"
    with locked(root / ".lock", when_waiting=lambda: report(waiting)):
        programs = find_in_cache(targets) | offer.programs
        for target, own in targets.items():
            _fetch([program for program in own if program.name not in programs], target, report, ways)
    return find_in_cache(targets) | offer.programs


def find_in_cache(targets: Mapping[Path, Sequence[Program]]) -> Programs:
    """Give what earlier fetches left of these programs in these directories."""
    found: Programs = {}
    for target, programs in targets.items():
        if _is_current(target):
            paths = {program.name: target / program.name for program in programs}
            found |= {name: path for name, path in paths.items() if os.access(path, os.X_OK)}
    return found


def _pins(target: Path) -> str:
    """Return the releases of the programs that belong into a directory of the cache, which a release names."""
    programs = programs_of(target.name)
    own = programs if target.name == KUBERNETES else [program for program in programs if program.is_exact]
    return "".join(sorted({f"{program.project} {program.release}\n" for program in own}))


def _is_current(target: Path) -> bool:
    """Return whether a directory of the cache has programs of the releases that we want."""
    file = target / PINS_FILE
    return file.is_file() and file.read_text() == _pins(target)


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
    """Move a program into the cache if it was fetched; return whether it was."""
    if not (partial / name).is_file():
        return False
    if not _is_current(target):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        (partial / PINS_FILE).write_text(_pins(target))
        (partial / PINS_FILE).replace(target / PINS_FILE)
    (partial / name).chmod(0o755)
    (partial / name).replace(target / name)
    return True


def find_on_machine(environment: Mapping[str, str], programs: Sequence[Program] = PROGRAMS) -> Offer:
    """Find programs in KUBEBUILDER_ASSETS and on PATH: the first of each name whose release is accepted."""
    path = os.pathsep.join(filter(None, (environment.get("KUBEBUILDER_ASSETS"), environment.get("PATH"))))
    directories = list(dict.fromkeys(path.split(os.pathsep)))
    offer, servers = Offer(), set()
    for program in programs:
        found = (shutil.which(program.name, path=directory) for directory in directories if directory)
        reasons = []
        for file in (Path(each).absolute() for each in found if each):
            version = installed_version(file)
            if version is not None and program.accepts(version):
                offer.programs[program.name] = file
                servers |= {version} if program.name in SERVER_NAMES else set()
                break
            release = "an unknown release" if version is None else "release {}.{}".format(*version)
            expected = f"{'' if program.is_exact else 'at least '}{'{}.{}'.format(*program.oldest)}"
            reasons.append(f"{file} is {release}, expected {expected}")
        else:
            if reasons:
                offer.rejected[program.name] = f"{'; '.join(reasons)}; using our own {program.name}"
    if len(servers) > 1 or not offer.programs.keys() >= SERVER_NAMES:  # they work together only in one release
        for name in SERVER_NAMES:
            offer.programs.pop(name, None)
            if len(servers) > 1:
                reason = "The Kubernetes programs on PATH are of different releases; using our own programs"
                offer.rejected.setdefault(name, reason)
    return offer


def installed_version(path: Path) -> tuple[int, int] | None:
    """Return a program's release as it reports it: major and minor number, or None."""
    arguments = ["version", "--client"] if path.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION_PATTERN.search(answer.stdout)
    return (int(match[1]), int(match[2])) if match else None
