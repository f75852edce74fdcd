"""Downloading the official releases, each file against a checksum that is pinned in checksums.txt.

A file without a pinned checksum is never downloaded, and a file that does not have its checksum is never used: both
are said in one line and end this way. ROLECALL_DOWNLOAD_MIRROR names a place that holds the same files under the same
paths, each below the name of its origin, such as MIRROR/dl.k8s.io/release/... Called by
rolecall.controlplane.binaries.
"""

import hashlib
import os
import platform
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.versions import ETCD, KUBERNETES, KWOK, PROGRAM_NAMES, PROGRAMS, Program

CHECKSUMS = Path(__file__).with_name("checksums.txt")
MIRROR_VARIABLE = "ROLECALL_DOWNLOAD_MIRROR"
CONNECT_TIMEOUT_SECONDS = 10.0
PROGRESS_SECONDS = 5.0
CHUNK_BYTES = 1024 * 1024
MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

Report = Callable[[str], None]


@dataclass(frozen=True)
class Asset:
    """A file of a release: where it lies (host and path) and, if it is an archive, which member is the program."""

    location: str
    member: str | None = None


def asset_of(program: Program, system: str, machine: str) -> Asset:
    """Say where the official release of a program lies, in Go's names of system and machine."""
    if program.project == "etcd":
        stem = f"etcd-{ETCD}-{system}-{machine}"
        return Asset(f"github.com/etcd-io/etcd/releases/download/{ETCD}/{stem}.tar.gz", f"{stem}/etcd")
    if program.project == "kwok":
        return Asset(f"github.com/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-{system}-{machine}")
    return Asset(f"dl.k8s.io/release/{KUBERNETES}/bin/{system}/{machine}/{program.name}")


def read_checksums(path: Path = CHECKSUMS) -> dict[str, str]:
    """Read the pinned checksums: location to SHA-256 in hexadecimal digits; lines that start with '#' are remarks."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {location: checksum for checksum, location in pairs}


def fetch_programs(target: Path, report: Report) -> None:
    """Download all programs into the target folder; BinariesUnavailableError if that is not possible."""
    Downloader(read_checksums(), os.environ.get(MIRROR_VARIABLE), report).fetch_all(target)


class Downloader:
    """Downloads the files of the releases from their origins, or from a mirror."""

    def __init__(self, checksums: Mapping[str, str], mirror: str | None, report: Report) -> None:
        """Take the pinned checksums by location, the mirror's URL, and who hears of progress."""
        self._checksums = checksums
        self._mirror = mirror.rstrip("/") if mirror else None
        self._report = report

    def fetch_all(self, target: Path) -> None:
        """Download every program; nothing is requested unless all of them have a pinned checksum."""
        system, machine = sys.platform, MACHINES.get(platform.machine().lower(), platform.machine())
        assets = {program.name: asset_of(program, system, machine) for program in PROGRAMS}
        unpinned = [asset.location for asset in assets.values() if asset.location not in self._checksums]
        if unpinned:
            raise BinariesUnavailableError(
                f"no checksum is pinned for {len(unpinned)} of {len(assets)} files, the first is {unpinned[0]!r}"
            )
        for number, name in enumerate(PROGRAM_NAMES, start=1):
            self.fetch(assets[name], target / name, f"{name} ({number} of {len(assets)})")

    def fetch(self, asset: Asset, program: Path, title: str) -> None:
        """Download one file, verify it, and put the program that it is, or that it contains, at the path."""
        url = f"{self._mirror}/{asset.location}" if self._mirror else f"https://{asset.location}"
        file = program.with_name(f"{program.name}.download")
        try:
            checksum = self._download(url, file, title)
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise BinariesUnavailableError(f"{url}: {reason}") from error
        expected = self._checksums[asset.location]
        if checksum != expected:
            raise BinariesUnavailableError(f"{url}: expected SHA-256 {expected}, found {checksum}")
        _unpack(asset, file, program)

    def _download(self, url: str, file: Path, title: str) -> str:
        """Write what lies at the URL into the file and give its SHA-256."""
        digest = hashlib.sha256()
        self._report(f"Downloading {title}")
        with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_SECONDS) as source, file.open("wb") as sink:  # noqa: S310 - https or the user's own mirror
            length = int(source.headers.get("Content-Length") or 0)
            self._copy(source, sink, digest.update, _Progress(title, length, self._report))
        return digest.hexdigest()

    @staticmethod
    def _copy(source: IO[bytes], sink: IO[bytes], update: Callable[[bytes], None], progress: "_Progress") -> None:
        while chunk := source.read(CHUNK_BYTES):
            sink.write(chunk)
            update(chunk)
            progress.step(len(chunk))


class _Progress:
    """Tells every few seconds how much is there."""

    def __init__(self, title: str, length: int, report: Report) -> None:
        self._title = title
        self._length = length
        self._report = report
        self._done = 0
        self._next = time.monotonic() + PROGRESS_SECONDS

    def step(self, count: int) -> None:
        """Count bytes that have arrived."""
        self._done += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            of_all = f" of {self._length / 1e6:.0f}" if self._length else ""
            self._report(f"  {self._title}: {self._done / 1e6:.0f}{of_all} MB")


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member


def _unpack(asset: Asset, file: Path, program: Path) -> None:
    if asset.member is None:
        file.replace(program)
        return
    try:
        with tarfile.open(file) as archive, program.open("wb") as sink, _member(archive, asset.member) as source:
            shutil.copyfileobj(source, sink)
    except (KeyError, tarfile.TarError) as error:
        raise BinariesUnavailableError(
            f"{asset.location}: expected an archive with {asset.member!r}: {error}"
        ) from error
    file.unlink()
