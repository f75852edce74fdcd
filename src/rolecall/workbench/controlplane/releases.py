"""The files of the official releases: where each program lies, and where its project publishes the checksum.

Kubernetes publishes FILE.sha256 beside each file, etcd one SHA256SUMS for each release. kwok publishes no such file;
for its files GitHub's description of the release gives the SHA-256 that GitHub computed when they were uploaded. A
location is a host and a path, without a scheme, so that a mirror can hold it as a folder.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from rolecall.workbench.controlplane.versions import ETCD, KUBERNETES, KWOK, Program

SHA256 = re.compile(r"[0-9a-f]{64}")

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
        stem, folder = f"etcd-{ETCD}-{system}-{machine}", f"github.com/etcd-io/etcd/releases/download/{ETCD}"
        return Asset(f"{folder}/{stem}.tar.gz", f"{folder}/SHA256SUMS", read_sha256sums, f"{stem}/etcd")
    if program.project == "kwok":
        location = f"github.com/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-{system}-{machine}"
        return Asset(location, f"api.github.com/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}", read_github_release)
    location = f"dl.k8s.io/release/{KUBERNETES}/bin/{system}/{machine}/{program.name}"
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
    """Find the checksum of a file in what GitHub's API says of a release."""
    try:
        digests = {asset["name"]: asset["digest"] for asset in json.loads(text)["assets"]}
    except (ValueError, KeyError, TypeError):
        return None
    algorithm, _, checksum = (digests.get(name) or "").partition(":")
    return _checked(checksum) if algorithm == "sha256" else None


def _checked(text: str) -> str | None:
    return text.lower() if SHA256.fullmatch(text.lower()) else None
