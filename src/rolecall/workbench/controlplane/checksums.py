"""The SHA-256 that a downloaded file must have, and who says so.

A checksum that checksums.txt pins counts before any other. For a file without one, it is what the file's project
publishes beside it, read over HTTPS from the same origin or mirror. A file whose checksum nobody states is not used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rolecall.workbench.controlplane import web
from rolecall.workbench.controlplane.errors import BinariesUnavailableError
from rolecall.workbench.controlplane.releases import Asset

CHECKSUMS = Path(__file__).with_name("checksums.txt")


@dataclass(frozen=True)
class Checksum:
    """The SHA-256 of a file in hexadecimal digits, and where it comes from."""

    sha256: str
    source: str


def read_pinned(path: Path = CHECKSUMS) -> dict[str, str]:
    """Read the pinned checksums: location to SHA-256 in hexadecimal digits; lines that start with '#' are remarks."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {location: checksum for checksum, location in pairs}


class Checksums:
    """Knows the pinned checksums, and asks for the published ones, all at the same time."""

    def __init__(self, pinned: Mapping[str, str], base: str, assets: Iterable[Asset]) -> None:
        """Begin to ask; the base is what stands before a location in a URL."""
        self._pinned = pinned
        self._base = base
        locations = {asset.checksum_location for asset in assets if asset.location not in pinned}
        is_trusted = base.startswith("https://")
        self._published = {at: web.begin_reading(base + at) for at in sorted(locations)} if is_trusted else {}

    def of(self, asset: Asset) -> Checksum:
        """Give the checksum that the file must have; BinariesUnavailableError if nobody states it."""
        if pinned := self._pinned.get(asset.location):
            return Checksum(pinned, f"pinned in {CHECKSUMS.name}")
        url = self._base + asset.checksum_location
        published = self._published.get(asset.checksum_location)
        if published is None:
            raise BinariesUnavailableError(
                f"no checksum of {asset.location} is pinned, and one from {url} cannot be trusted without HTTPS"
            )
        try:
            sha256 = asset.read_checksum(published.result(), asset.name)
        except web.ERRORS as error:
            raise web.failure(url, error) from error
        if sha256 is None:
            raise BinariesUnavailableError(
                f"{self._base}{asset.location}: expected its SHA-256 at {url}, found none there; "
                f"a file that cannot be verified is not used"
            )
        return Checksum(sha256, f"published at {url}")
