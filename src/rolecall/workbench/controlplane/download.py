"""Downloading the official releases, each file verified by its checksum.

A file that does not have its checksum is discarded, and a host that does not answer is asked once. What fails keeps
nothing else from being downloaded. ROLECALL_DOWNLOAD_MIRROR names a place that holds the same files under the same
paths, each below the name of its origin, such as MIRROR/dl.k8s.io/release/...
"""

import hashlib
import http.client
import os
import platform
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from rolecall.workbench.controlplane import web
from rolecall.workbench.controlplane.checksums import Checksum, Checksums, read_pinned
from rolecall.workbench.controlplane.errors import BinariesUnavailableError
from rolecall.workbench.controlplane.releases import Asset, asset_of
from rolecall.workbench.controlplane.versions import Program

MIRROR_VARIABLE = "ROLECALL_DOWNLOAD_MIRROR"
PROGRESS_SECONDS = 5.0
CHUNK_BYTES = 1024 * 1024
MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

Report = Callable[[str], None]


def fetch_programs(programs: Sequence[Program], target: Path, report: Report) -> None:
    """Download programs into the target folder; BinariesUnavailableError if any of them could not be."""
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
        self._unreachable: dict[str, web.HostUnreachableError] = {}

    def fetch_all(self, assets: Mapping[str, Asset], target: Path) -> None:
        """Download every program that can be had; BinariesUnavailableError says which could not, and why."""
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
        if known := self._unreachable.get(web.host_of(url)):
            raise known
        file = program.with_name(f"{program.name}.download")
        try:
            expected = checksums.of(asset)
            self._download(url, file, title, expected)
        except web.HostUnreachableError as error:
            self._unreachable[error.host] = error
            raise
        _unpack(asset, file, program)

    def _download(self, url: str, file: Path, title: str, expected: Checksum) -> None:
        """Write what lies at the URL into the file; BinariesUnavailableError if it is not the file that we want."""
        try:
            response = web.open_url(url)
        except web.ERRORS as error:
            raise web.failure(url, error) from error
        with response:
            length = int(response.headers.get("Content-Length") or 0)
            found = self._copy(url, response, file, _Progress(title, length, self._report))
        if found != expected.sha256:
            file.unlink()
            raise BinariesUnavailableError(
                f"{url}: expected SHA-256 {expected.sha256} ({expected.source}), found {found}; the file is discarded. "
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
        except web.ERRORS as error:
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
        with tarfile.open(file) as archive, _member(archive, asset.member) as source, program.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (KeyError, EOFError, tarfile.TarError, OSError) as error:
        program.unlink(missing_ok=True)
        raise BinariesUnavailableError(
            f"{asset.location}: expected an archive with {asset.member!r}: {error}"
        ) from error
    file.unlink()
