"""Downloads of the official releases, each file verified by its checksum.

This module lists the programs, the release of each, and the Go package that builds it; the modules in
tools/controlplane pin the same releases for the build, and a test compares both. It also holds the oldest releases that
are accepted from another source, such as PATH.

Kubernetes publishes FILE.sha256 next to each file, etcd one SHA256SUMS for each release. kwok publishes no such file;
for its files, GitHub's description of the release contains the SHA-256 that GitHub computed at the upload. A location
is a host and a path, without a scheme, so that a mirror can hold it as a directory: ROLECALL_DOWNLOAD_MIRROR names a
mirror with the same files, each below the name of its origin, such as MIRROR/dl.k8s.io/release/...

The checksums in ``checksums.txt`` come first. A file that isn't listed there needs the checksum that its project
publishes, read over HTTPS from the same origin or mirror. A file without a checksum isn't used, and a file with another
checksum is discarded. A failure doesn't prevent the download of other programs, and an unreachable host is asked once.

A host that can't be reached fails within OPEN_SECONDS, even if the name service, one of many addresses, a proxy, or the
TLS handshake hangs. A redirect from HTTPS to another scheme is rejected. Proxies come from the environment, trusted
authorities from the system or SSL_CERT_FILE.
"""

import hashlib
import http.client
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Generic, TypeVar

from rolecall.workbench.controlplane.errors import BinariesUnavailableError

KUBERNETES = "v1.37.1"
ETCD = "v3.7.0"
KWOK = "v0.8.0"

OLDEST_KUBERNETES = (1, 36)  # exec in simulated pods: see node.yaml
OLDEST_ETCD = (3, 7)  # 3.6 rejects the URL of a socket as --initial-advertise-peer-urls, because it has no port
OLDEST_KWOK = (0, 8)

RELEASES = {
    "1.31": "v1.31.13",
    "1.32": "v1.32.13",
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.3",
    "1.37": KUBERNETES,
}
"""The releases of Kubernetes that a control plane can have, by their minor versions."""

SERVER_NAMES = frozenset({"kube-apiserver", "kube-controller-manager", "kube-scheduler"})
SHA256 = re.compile(r"[0-9a-f]{64}")
OPEN_SECONDS = 8.0
STALL_SECONDS = 30.0
TEXT_BYTES = 4 * 1024 * 1024
WEB_ERRORS = (OSError, ValueError, http.client.HTTPException)
CHECKSUMS = Path(__file__).with_name("checksums.txt")
MIRROR_VARIABLE = "ROLECALL_DOWNLOAD_MIRROR"
PROGRESS_SECONDS = 5.0
CHUNK_BYTES = 1024 * 1024
MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """One program: its file's name, its project, the Go package that builds it, the oldest release accepted, and ours.

    With ``is_exact``, another source must have the minor version of our release.
    """

    name: str
    project: str
    go_package: str
    oldest: tuple[int, int]
    release: str
    is_exact: bool = False

    def accepts(self, version: tuple[int, int]) -> bool:
        """Return whether a program with this major and minor version can be used."""
        return version == self.oldest if self.is_exact else version >= self.oldest


def _kubernetes(name: str, release: str) -> Program:
    package, is_default = f"k8s.io/kubernetes/cmd/{name}", release == KUBERNETES
    oldest = OLDEST_KUBERNETES if is_default else minor_version(release)
    return Program(name, "kubernetes", package, oldest, release, is_exact=not is_default)


def minor_version(release: str) -> tuple[int, int]:
    """Return the major and the minor number of a release such as ``v1.37.1``."""
    major, minor, *_ = release.removeprefix("v").split(".")
    return int(major), int(minor)


def programs_of(kubernetes: str) -> tuple[Program, ...]:
    """Return the programs of a control plane with a release of Kubernetes."""
    return (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", OLDEST_ETCD, ETCD),
        _kubernetes("kube-apiserver", kubernetes),
        _kubernetes("kube-controller-manager", kubernetes),
        _kubernetes("kube-scheduler", kubernetes),
        Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", OLDEST_KWOK, KWOK),
        _kubernetes("kubectl", kubernetes),
    )


PROGRAMS = programs_of(KUBERNETES)
PROGRAM_NAMES = tuple(program.name for program in PROGRAMS)


ReadChecksum = Callable[[str, str], str | None]


@dataclass(frozen=True)
class Asset:
    """A file of a release.

    `location` is where it lies, `member` the program in it if it is an archive, `checksum_location` where its checksum
    is published, and `read_checksum` finds the checksum there: it takes the text and the name of the file.
    """

    location: str
    checksum_location: str
    read_checksum: ReadChecksum
    member: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.location.rpartition("/")[2]


def asset_of(program: Program, system: str, machine: str) -> Asset:
    """Say where the official release of a program lies, in Go's names of system and machine."""
    if program.project == "etcd":
        stem, directory = f"etcd-{ETCD}-{system}-{machine}", f"github.com/etcd-io/etcd/releases/download/{ETCD}"
        return Asset(f"{directory}/{stem}.tar.gz", f"{directory}/SHA256SUMS", read_sha256sums, f"{stem}/etcd")
    if program.project == "kwok":
        location = f"github.com/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-{system}-{machine}"
        return Asset(location, f"api.github.com/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}", read_github_release)
    location = f"dl.k8s.io/release/{program.release}/bin/{system}/{machine}/{program.name}"
    return Asset(location, f"{location}.sha256", read_sha256_file)


def read_sha256_file(text: str, _name: str) -> str | None:
    """Read a file that holds one checksum and nothing else."""
    return _checked(text.strip())


def read_sha256sums(text: str, name: str) -> str | None:
    """Find the checksum of a file in the output of sha256sum."""
    pairs = (line.split() for line in text.splitlines())
    found = [pair[0] for pair in pairs if len(pair) == 2 and pair[1].removeprefix("*") == name]  # noqa: PLR2004 - a pair
    return _checked(found[0]) if len(found) == 1 else None


def read_github_release(text: str, name: str) -> str | None:
    """Return the checksum of a file from GitHub's description of a release."""
    try:
        digests = {asset["name"]: asset["digest"] for asset in json.loads(text)["assets"]}
    except (ValueError, KeyError, TypeError):
        return None
    algorithm, _, checksum = (digests.get(name) or "").partition(":")
    return _checked(checksum) if algorithm == "sha256" else None


def _checked(text: str) -> str | None:
    return text.lower() if SHA256.fullmatch(text.lower()) else None


class HostUnreachableError(BinariesUnavailableError):
    """A host does not answer, so asking it for the next file would only take time."""

    def __init__(self, url: str, reason: object) -> None:
        self.host = host_of(url)
        super().__init__(f"{self.host} cannot be reached: {reason}")


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0913, PLR0917 - the parameters of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.type == "https" and not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class InBackground(Generic[T]):
    """Runs a function in a separate thread, and stops waiting for it after a time limit."""

    def __init__(self, action: Callable[[], T], seconds: float) -> None:
        """Start immediately. After the time limit the thread is abandoned: a name service can't be interrupted."""
        self._future: Future[T] = Future()
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        threading.Thread(target=self._run, args=(action,), daemon=True).start()

    def _run(self, action: Callable[[], T]) -> None:
        try:
            self._future.set_result(action())
        except Exception as error:  # noqa: BLE001 - raised again in the waiting thread
            self._future.set_exception(error)

    def result(self) -> T:
        """Return the result of the action, or raise its error; TimeoutError if it takes too long."""
        if wait([self._future], timeout=max(0.0, self._deadline - time.monotonic())).not_done:
            raise TimeoutError(f"no answer within {self._seconds:g} s")
        return self._future.result()


def host_of(url: str) -> str:
    """Give host and port of a URL."""
    return urllib.parse.urlsplit(url).netloc


def web_failure(url: str, error: Exception) -> BinariesUnavailableError:
    """Return the error for one of WEB_ERRORS: the host is unreachable, or responds with an error."""
    if isinstance(error, urllib.error.HTTPError):
        return BinariesUnavailableError(f"{url}: HTTP status {error.code} {error.reason}")
    if isinstance(error, OSError):
        return HostUnreachableError(url, error.reason if isinstance(error, urllib.error.URLError) else error)
    return BinariesUnavailableError(f"{url}: {error}")


def _open(url: str) -> http.client.HTTPResponse:
    opener = urllib.request.build_opener(_StayOnHttps)
    response: http.client.HTTPResponse = opener.open(url, timeout=STALL_SECONDS)
    return response


def _read(url: str) -> str:
    with _open(url) as response:
        return response.read(TEXT_BYTES).decode()


def read_pinned(path: Path = CHECKSUMS) -> dict[str, str]:
    """Read the pinned checksums: location to SHA-256 in hexadecimal digits; lines that start with '#' are remarks."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {location: checksum for checksum, location in pairs}


class Checksums:
    """The pinned checksums, and the published ones, requested concurrently."""

    def __init__(self, pinned: Mapping[str, str], base: str, assets: Iterable[Asset]) -> None:
        """Begin to ask; the base is what stands before a location in a URL."""
        self._pinned = pinned
        self._base = base
        is_trusted = base.startswith("https://")
        wanted = {asset.checksum_location for asset in assets if is_trusted and asset.location not in pinned}
        self._published = {at: InBackground(partial(_read, base + at), OPEN_SECONDS) for at in sorted(wanted)}

    def of(self, asset: Asset) -> tuple[str, str]:
        """Return the SHA-256 that the file must have, and its source. Raise BinariesUnavailableError without one."""
        if pinned := self._pinned.get(asset.location):
            return pinned, f"pinned in {CHECKSUMS.name}"
        url = self._base + asset.checksum_location
        published = self._published.get(asset.checksum_location)
        if published is None:
            raise BinariesUnavailableError(
                f"no checksum of {asset.location} is pinned, and one from {url} cannot be trusted without HTTPS"
            )
        try:
            sha256 = asset.read_checksum(published.result(), asset.name)
        except WEB_ERRORS as error:
            raise web_failure(url, error) from error
        if sha256 is None:
            raise BinariesUnavailableError(
                f"{self._base}{asset.location}: expected its SHA-256 at {url}, found none there; "
                f"a file that cannot be verified is not used"
            )
        return sha256, f"published at {url}"


Report = Callable[[str], None]


def fetch_programs(programs: Sequence[Program], target: Path, report: Report) -> None:
    """Download programs into the target directory; BinariesUnavailableError if any of them could not be."""
    system, machine = sys.platform, MACHINES.get(platform.machine().lower(), platform.machine())
    assets = {program.name: asset_of(program, system, machine) for program in programs}
    mirror = os.environ.get(MIRROR_VARIABLE)
    Downloader(read_pinned(), mirror, report).fetch_all(assets, target)


class Downloader:
    """Downloads the files of the releases from their origins, or from a mirror."""

    def __init__(self, pinned: Mapping[str, str], mirror: str | None, report: Report) -> None:
        """Take the pinned checksums by location, the mirror's URL, and who hears of progress."""
        self._pinned = pinned
        self._base = f"{mirror.rstrip('/')}/" if mirror else "https://"
        self._report = report
        self._unreachable: dict[str, HostUnreachableError] = {}

    def fetch_all(self, assets: Mapping[str, Asset], target: Path) -> None:
        """Download every available program. BinariesUnavailableError lists the others with their reasons."""
        checksums = Checksums(self._pinned, self._base, assets.values())
        failed: dict[str, list[str]] = {}
        for number, (name, asset) in enumerate(assets.items(), start=1):
            title = f"{name} ({number} of {len(assets)})"
            try:
                self._fetch(asset, checksums, target / name, title)
            except BinariesUnavailableError as error:
                failed.setdefault(str(error), []).append(name)
        if failed:
            raise BinariesUnavailableError("; ".join(f"{', '.join(names)}: {why}" for why, names in failed.items()))

    def _fetch(self, asset: Asset, checksums: Checksums, program: Path, title: str) -> None:
        """Download one file, verify it, and put the program that it is, or that it contains, at the path."""
        url = self._base + asset.location
        if known := self._unreachable.get(host_of(url)):
            raise known
        file = program.with_name(f"{program.name}.download")
        try:
            expected = checksums.of(asset)
            self._download(url, file, title, expected)
        except HostUnreachableError as error:
            self._unreachable[error.host] = error
            raise
        _unpack(asset, file, program)

    def _download(self, url: str, file: Path, title: str, expected: tuple[str, str]) -> None:
        """Write what lies at the URL into the file; BinariesUnavailableError if it is not the file that we want."""
        try:
            response = InBackground(lambda: _open(url), OPEN_SECONDS).result()
        except WEB_ERRORS as error:
            raise web_failure(url, error) from error
        with response:
            length = int(response.headers.get("Content-Length") or 0)
            found = self._copy(url, response, file, _Progress(title, length, self._report))
        sha256, source = expected
        if found != sha256:
            file.unlink()
            raise BinariesUnavailableError(
                f"{url}: expected SHA-256 {sha256} ({source}), found {found}; the file is discarded. "
                f"Try again, or set {MIRROR_VARIABLE} to a mirror that has the right file"
            )

    @staticmethod
    def _copy(url: str, source: http.client.HTTPResponse, file: Path, progress: "_Progress") -> str:
        """Write the body into the file and give its SHA-256."""
        digest = hashlib.sha256()
        try:
            with file.open("wb") as sink:
                while chunk := source.read(CHUNK_BYTES):
                    sink.write(chunk)
                    digest.update(chunk)
                    progress.step(len(chunk))
        except WEB_ERRORS as error:
            raise BinariesUnavailableError(f"{url}: ended after {progress}: {error}") from error
        if progress.is_short:
            raise BinariesUnavailableError(f"{url}: ended after {progress}; try again")
        return digest.hexdigest()


class _Progress:
    """Tells, at the beginning and every few seconds, how much of a file is there."""

    def __init__(self, title: str, length: int, report: Report) -> None:
        self._title = title
        self._length = length
        self._report = report
        self._done = 0
        self._next = time.monotonic() + PROGRESS_SECONDS
        size = f", {length / 1e6:.0f} MB" if length else ""
        report(f"Downloading {title}{size}")

    def __str__(self) -> str:
        of_all = f" of {self._length}" if self._length else ""
        return f"{self._done}{of_all} bytes"

    @property
    def is_short(self) -> bool:
        """Whether less has arrived than was announced."""
        return self._done < self._length

    def step(self, count: int) -> None:
        """Count bytes that have arrived."""
        self._done += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            of_all = f" of {self._length / 1e6:.0f}" if self._length else ""
            self._report(f"  {self._title}: {self._done / 1e6:.0f}{of_all} MB")


def _unpack(asset: Asset, file: Path, program: Path) -> None:
    if asset.member is None:
        file.replace(program)
        return
    try:
        with tarfile.open(file) as archive, program.open("wb") as sink:
            if (source := archive.extractfile(asset.member)) is None:
                raise KeyError(asset.member)  # noqa: TRY301 - as for a member that is missing
            shutil.copyfileobj(source, sink)
    except (KeyError, EOFError, tarfile.TarError, OSError) as error:
        program.unlink(missing_ok=True)
        raise BinariesUnavailableError(
            f"{asset.location}: expected an archive with {asset.member!r}: {error}"
        ) from error
    file.unlink()
