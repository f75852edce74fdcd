import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rolecall.controlplane.download import Asset, Downloader, asset_of, fetch_programs, read_checksums
from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.versions import PROGRAM_NAMES, PROGRAMS


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gave it
        del format, args


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Give a folder that holds a release of every program, as a mirror would."""
    root = tmp_path / "release"
    for program in PROGRAMS:
        asset = asset_of(program, "linux", "amd64")
        file = root / asset.location
        file.parent.mkdir(parents=True, exist_ok=True)
        content = f"the program {program.name}".encode()
        if asset.member is None:
            file.write_bytes(content)
            continue
        with tarfile.open(file, "w:gz") as archive:
            member = tarfile.TarInfo(asset.member)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture
def mirror(release: Path) -> Iterator[str]:
    """Serve the release on loopback and give the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=release))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def checksums(release: Path) -> dict[str, str]:
    """Give the right checksums of the release."""
    files = [path for path in release.rglob("*") if path.is_file()]
    return {str(file.relative_to(release)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(autouse=True)
def linux_on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every machine the one that the release is for."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Give the folder to download to."""
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def test_right_checksums_give_every_program(mirror: str, checksums: dict[str, str], target: Path) -> None:
    said: list[str] = []
    Downloader(checksums, mirror, said.append).fetch_all(target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        name: f"the program {name}" for name in PROGRAM_NAMES
    }
    assert len(said) == len(PROGRAM_NAMES)


def test_a_wrong_checksum_is_refused_and_says_what_was_found(
    mirror: str, checksums: dict[str, str], target: Path
) -> None:
    location = next(location for location in checksums if location.endswith("/kube-scheduler"))
    right, wrong = checksums[location], "0" * 64
    with pytest.raises(BinariesUnavailableError) as failure:
        Downloader(checksums | {location: wrong}, mirror, print).fetch_all(target)
    assert location in str(failure.value)
    assert f"expected SHA-256 {wrong}, found {right}" in str(failure.value)
    assert not (target / "kube-scheduler").exists()


def test_without_a_pinned_checksum_nothing_is_requested(checksums: dict[str, str], target: Path) -> None:
    location = next(location for location in checksums if "kwok" in location)
    del checksums[location]
    nobody = "http://127.0.0.1:9/"
    with pytest.raises(BinariesUnavailableError, match=r"no checksum is pinned for 1 of 6 files") as failure:
        Downloader(checksums, nobody, print).fetch_all(target)
    assert location in str(failure.value)
    assert list(target.iterdir()) == []


def test_a_file_that_the_mirror_does_not_have_is_named(
    mirror: str, release: Path, checksums: dict[str, str], target: Path
) -> None:
    location = next(location for location in checksums if location.endswith("/kubectl"))
    (release / location).unlink()
    with pytest.raises(BinariesUnavailableError, match=r"kubectl: .*404|kubectl: File not found|kubectl: Not Found"):
        Downloader(checksums, mirror, print).fetch_all(target)


def test_a_mirror_that_does_not_answer_fails_at_once(checksums: dict[str, str], target: Path) -> None:
    with pytest.raises(BinariesUnavailableError, match="refused"):
        Downloader(checksums, "http://127.0.0.1:9", print).fetch_all(target)


def test_an_archive_without_the_program_is_refused(
    mirror: str, release: Path, checksums: dict[str, str], target: Path
) -> None:
    location = next(location for location in checksums if location.endswith(".tar.gz"))
    with tarfile.open(release / location, "w:gz"):
        pass
    checksums[location] = hashlib.sha256((release / location).read_bytes()).hexdigest()
    with pytest.raises(BinariesUnavailableError, match="expected an archive with"):
        Downloader(checksums, mirror, print).fetch_all(target)


def test_the_mirror_comes_from_the_environment(
    mirror: str, target: Path, monkeypatch: pytest.MonkeyPatch, checksums: dict[str, str]
) -> None:
    monkeypatch.setenv("ROLECALL_DOWNLOAD_MIRROR", mirror)
    monkeypatch.setattr("rolecall.controlplane.download.read_checksums", lambda: checksums)
    fetch_programs(target, print)
    assert (target / "etcd").read_text() == "the program etcd"


def test_checksums_are_read_without_remarks(tmp_path: Path) -> None:
    file = tmp_path / "checksums.txt"
    file.write_text("# remark\n\nabc  host/path\n")
    assert read_checksums(file) == {"host/path": "abc"}


def test_every_pinned_checksum_is_a_sha256() -> None:
    for location, checksum in read_checksums().items():
        assert len(bytes.fromhex(checksum)) == hashlib.sha256().digest_size, location


def test_official_locations_carry_system_and_machine() -> None:
    etcd = next(program for program in PROGRAMS if program.name == "etcd")
    asset = asset_of(etcd, "linux", "arm64")
    assert asset == Asset(asset.location, asset.member)
    assert asset.location.startswith("github.com/etcd-io/etcd/releases/download/v")
    assert asset.location.endswith("-linux-arm64.tar.gz")
    assert asset.member is not None
    assert asset.member.endswith("-linux-arm64/etcd")
