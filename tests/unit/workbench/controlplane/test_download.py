import hashlib
import io
import json
import re
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rolecall.workbench.controlplane.binaries import module_directory
from rolecall.workbench.controlplane.certificates import CertificateAuthority
from rolecall.workbench.controlplane.download import (
    ETCD,
    KUBERNETES,
    KWOK,
    PROGRAM_NAMES,
    PROGRAMS,
    RELEASES,
    Asset,
    Downloader,
    asset_of,
    fetch_programs,
    read_pinned,
)
from rolecall.workbench.controlplane.errors import BinariesUnavailableError

ASSETS: dict[str, Asset] = {program.name: asset_of(program, "linux", "amd64") for program in PROGRAMS}
SCHEDULER = ASSETS["kube-scheduler"]
NOTHING_PINNED: dict[str, str] = {}


class _Server(ThreadingHTTPServer):
    """Keeps the paths that were asked for, and is silent about clients that do not trust it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=directory))
        self.requests: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address


class _Handler(SimpleHTTPRequestHandler):
    """Serves files; PATH.short announces more than it sends, and PATH.elsewhere holds where to redirect to."""

    def do_GET(self) -> None:
        file = Path(self.translate_path(self.path))
        assert isinstance(self.server, _Server)
        self.server.requests.append(self.path)
        if (elsewhere := file.with_name(f"{file.name}.elsewhere")).is_file():
            self.send_response(302)
            self.send_header("Location", elsewhere.read_text())
            self.end_headers()
        elif (short := file.with_name(f"{file.name}.short")).is_file():
            self.send_response(200)
            self.send_header("Content-Length", str(short.stat().st_size + 1000))
            self.end_headers()
            self.wfile.write(short.read_bytes())
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gave it
        del format, args


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a directory that holds a release of every program and its checksums, in the forms of the real ones."""
    root = tmp_path / "release"
    for name, asset in ASSETS.items():
        file, published = root / asset.location, root / asset.checksum_location
        file.parent.mkdir(parents=True, exist_ok=True)
        published.parent.mkdir(parents=True, exist_ok=True)
        _write_program(file, asset, f"the program {name}".encode())
        published.write_text(_published(name, file))
    return root


def _write_program(file: Path, asset: Asset, content: bytes) -> None:
    if asset.member is None:
        file.write_bytes(content)
        return
    with tarfile.open(file, "w:gz") as archive:
        member = tarfile.TarInfo(asset.member)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _published(name: str, file: Path) -> str:
    if name == "etcd":
        return f"{'1' * 64}  etcd-of-another-system.tar.gz\n{_sha256(file)}  {file.name}\n"
    if name == "kwok":
        assets = [{"name": "kwok.yaml", "digest": None}, {"name": file.name, "digest": f"sha256:{_sha256(file)}"}]
        return json.dumps({"tag_name": "v0", "assets": assets})
    return _sha256(file)


@pytest.fixture
def server(release: Path) -> Iterator[_Server]:
    """Serve the release on loopback, over plain HTTP."""
    server = _Server(release)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CertificateAuthority:
    """Return an authority that this process trusts."""
    authority = CertificateAuthority("mirror")
    file = tmp_path / "authority.pem"
    file.write_bytes(authority.own.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return authority


@pytest.fixture
def mirror(server: _Server, authority: CertificateAuthority, tmp_path: Path) -> str:
    """Serve the release over HTTPS instead, and give the URL."""
    pair = authority.server("127.0.0.1")
    file = tmp_path / "server.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return f"https://127.0.0.1:{server.server_port}"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every machine the one that the release is for, without a proxy, and let it be busy."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("rolecall.workbench.controlplane.download.OPEN_SECONDS", 60.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return the directory to download to."""
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def _names(target: Path) -> list[str]:
    return sorted(path.name for path in target.iterdir())


def _others(*names: str) -> list[str]:
    return sorted(set(PROGRAM_NAMES) - set(names))


def test_every_program_is_verified_against_what_its_own_project_publishes(mirror: str, target: Path) -> None:
    said: list[str] = []
    Downloader(NOTHING_PINNED, mirror, said.append).fetch_all(ASSETS, target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        name: f"the program {name}" for name in PROGRAM_NAMES
    }
    assert [line.split(",")[0] for line in said] == [
        f"Downloading {name} ({number} of 6)" for number, name in enumerate(PROGRAM_NAMES, start=1)
    ]


def test_a_pinned_checksum_counts_before_the_published_one(mirror: str, release: Path, target: Path) -> None:
    right = _sha256(release / SCHEDULER.location)
    (release / SCHEDULER.checksum_location).write_text("0" * 64)
    Downloader({SCHEDULER.location: right}, mirror, print).fetch_all(ASSETS, target)
    assert _names(target) == sorted(PROGRAM_NAMES)


@pytest.mark.parametrize("source", ["pinned in checksums.txt", "published at"])
def test_a_wrong_checksum_discards_the_file_and_says_what_was_expected_and_found(
    mirror: str, release: Path, target: Path, source: str
) -> None:
    right, wrong = _sha256(release / SCHEDULER.location), "0" * 64
    (release / SCHEDULER.checksum_location).write_text(wrong)
    pinned = {SCHEDULER.location: wrong} if "pinned" in source else NOTHING_PINNED
    with pytest.raises(BinariesUnavailableError) as failure:
        Downloader(pinned, mirror, print).fetch_all(ASSETS, target)
    said = str(failure.value)
    assert f"{mirror}/{SCHEDULER.location}" in said
    assert f"expected SHA-256 {wrong} ({source}" in said
    assert f"found {right}" in said
    assert "ROLECALL_DOWNLOAD_MIRROR" in said
    assert _names(target) == _others("kube-scheduler")


@pytest.mark.parametrize(
    "published",
    [
        ("kube-scheduler", ""),
        ("kube-scheduler", "<html>not found</html>"),
        ("etcd", f"{'0' * 64}  etcd-of-another-system.tar.gz\n"),
        ("kwok", "{}"),
        ("kwok", '{"assets": [{"name": "kwok-linux-amd64", "digest": null}]}'),
        ("kwok", '{"assets": [{"name": "kwok-linux-amd64", "digest": "sha512:00"}]}'),
        ("kwok", "rate limit exceeded"),
    ],
)
def test_a_file_whose_checksum_is_not_published_is_not_even_requested(
    server: _Server, mirror: str, release: Path, target: Path, published: tuple[str, str]
) -> None:
    name, text = published
    asset = ASSETS[name]
    (release / asset.checksum_location).write_text(text)
    with pytest.raises(BinariesUnavailableError, match=r"expected its SHA-256 at .*, found none there") as failure:
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)
    assert asset.location in str(failure.value)
    assert f"/{asset.location}" not in server.requests
    assert _names(target) == _others(name)


def test_a_checksum_file_that_is_missing_is_named(mirror: str, release: Path, target: Path) -> None:
    (release / SCHEDULER.checksum_location).unlink()
    with pytest.raises(BinariesUnavailableError, match=r"kube-scheduler\.sha256: HTTP status 404"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)
    assert _names(target) == _others("kube-scheduler")


def test_a_published_checksum_is_not_trusted_without_https(server: _Server, target: Path) -> None:
    with pytest.raises(BinariesUnavailableError, match="cannot be trusted without HTTPS"):
        Downloader(NOTHING_PINNED, f"http://127.0.0.1:{server.server_port}", print).fetch_all(ASSETS, target)
    assert server.requests == []
    assert _names(target) == []


def test_a_mirror_without_https_is_enough_for_files_with_a_pinned_checksum(
    server: _Server, release: Path, target: Path
) -> None:
    pinned = {asset.location: _sha256(release / asset.location) for asset in ASSETS.values()}
    Downloader(pinned, f"http://127.0.0.1:{server.server_port}/", print).fetch_all(ASSETS, target)
    assert _names(target) == sorted(PROGRAM_NAMES)


def test_a_redirect_that_leaves_https_is_not_followed(mirror: str, release: Path, target: Path) -> None:
    published = release / SCHEDULER.checksum_location
    published.with_name(f"{published.name}.elsewhere").write_text("http://127.0.0.1:9/checksum")
    with pytest.raises(BinariesUnavailableError, match=r"redirects to http://127\.0\.0\.1:9/\S+, which is not HTTPS"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all({"kube-scheduler": SCHEDULER}, target)


def test_a_server_whose_authority_is_unknown_is_not_trusted(
    mirror: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(CertificateAuthority("stranger").own.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger))
    with pytest.raises(BinariesUnavailableError, match="certificate verify failed"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)


def test_a_body_that_ends_early_is_an_error_that_says_how_much_came(mirror: str, release: Path, target: Path) -> None:
    file = release / SCHEDULER.location
    file.rename(file.with_name(f"{file.name}.short"))
    with pytest.raises(BinariesUnavailableError, match=r"kube-scheduler: ended after 26 of 1026 bytes"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)
    assert "kube-scheduler" not in _names(target)


def test_a_file_that_the_mirror_does_not_have_is_named(mirror: str, release: Path, target: Path) -> None:
    (release / ASSETS["kubectl"].location).unlink()
    with pytest.raises(BinariesUnavailableError, match="kubectl: HTTP status 404"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)
    assert _names(target) == _others("kubectl")


def test_a_host_that_refuses_fails_once_for_all_its_files(target: Path) -> None:
    with pytest.raises(BinariesUnavailableError) as failure:
        Downloader(NOTHING_PINNED, "https://127.0.0.1:9", print).fetch_all(ASSETS, target)
    assert str(failure.value).startswith(", ".join(PROGRAM_NAMES) + ": 127.0.0.1:9 cannot be reached: ")
    assert "refused" in str(failure.value)


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_host_that_never_answers_is_given_up_once_for_all_its_files(
    target: Path, monkeypatch: pytest.MonkeyPatch, *, is_pinned: bool
) -> None:
    monkeypatch.setattr("rolecall.workbench.controlplane.download.OPEN_SECONDS", 0.5)
    pinned = {asset.location: "0" * 64 for asset in ASSETS.values()} if is_pinned else NOTHING_PINNED
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        with pytest.raises(BinariesUnavailableError, match=r"cannot be reached: no answer within 0\.5 s"):
            Downloader(pinned, f"https://127.0.0.1:{silent.getsockname()[1]}", print).fetch_all(ASSETS, target)
        checksums = 0 if is_pinned else len({asset.checksum_location for asset in ASSETS.values()})
        assert _count_connections(silent) <= (checksums or 1)


def _count_connections(listener: socket.socket) -> int:
    listener.settimeout(0)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_an_archive_without_the_program_is_refused(mirror: str, release: Path, target: Path) -> None:
    asset = ASSETS["etcd"]
    with tarfile.open(release / asset.location, "w:gz"):
        pass
    (release / asset.checksum_location).write_text(_published("etcd", release / asset.location))
    with pytest.raises(BinariesUnavailableError, match="expected an archive with"):
        Downloader(NOTHING_PINNED, mirror, print).fetch_all(ASSETS, target)
    assert "etcd" not in _names(target)


def test_the_mirror_comes_from_the_environment_and_only_what_is_wanted_is_fetched(
    mirror: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLECALL_DOWNLOAD_MIRROR", mirror)
    fetch_programs([program for program in PROGRAMS if program.name == "etcd"], target, print)
    assert _names(target) == ["etcd"]
    assert (target / "etcd").read_text() == "the program etcd"


def test_checksums_are_read_without_remarks(tmp_path: Path) -> None:
    file = tmp_path / "checksums.txt"
    file.write_text("# remark\n\nabc  host/path\n")
    assert read_pinned(file) == {"host/path": "abc"}


def test_every_pinned_checksum_is_a_sha256_of_a_file_of_these_releases() -> None:
    known = {asset_of(program, "linux", machine).location for program in PROGRAMS for machine in ("amd64", "arm64")}
    for location, checksum in read_pinned().items():
        assert len(bytes.fromhex(checksum)) == hashlib.sha256().digest_size, location
        assert location in known


@pytest.mark.parametrize("machine", ["amd64", "arm64"])
def test_the_checksum_of_kwok_is_pinned_because_its_project_publishes_none(machine: str) -> None:
    kwok = next(program for program in PROGRAMS if program.name == "kwok")
    assert asset_of(kwok, "linux", machine).location in read_pinned()


@pytest.mark.parametrize("machine", ["amd64", "arm64"])
def test_official_locations_carry_system_and_machine(machine: str) -> None:
    assets = {program.name: asset_of(program, "linux", machine) for program in PROGRAMS}
    assert assets["etcd"].location.startswith("github.com/etcd-io/etcd/releases/download/v")
    assert assets["etcd"].location.endswith(f"-linux-{machine}.tar.gz")
    assert assets["etcd"].member == f"{assets['etcd'].name.removesuffix('.tar.gz')}/etcd"
    assert assets["kwok"].location.endswith(f"/kwok-linux-{machine}")
    assert f"/bin/linux/{machine}/kubectl" in assets["kubectl"].location


def _required(module: str, release: str = KUBERNETES) -> str:
    text = (module_directory(release) / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert found is not None, f"{module} is not required"
    return found[1]


def test_the_modules_pin_the_releases_that_the_package_names() -> None:
    assert {release: _required("k8s.io/kubernetes", release) for release in RELEASES.values()} == {
        release: release for release in RELEASES.values()
    }
    assert _required("go.etcd.io/etcd/server/v3") == ETCD
    assert _required("sigs.k8s.io/kwok") == KWOK


@pytest.mark.parametrize("release", RELEASES.values())
def test_every_staging_module_is_replaced_by_the_release_that_matches(release: str) -> None:
    text = (module_directory(release) / "go.mod").read_text()
    replaced = dict(re.findall(r"^\s+(k8s\.io/\S+) => \S+ (v\S+)", text, re.MULTILINE))
    unreplaced = re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0 ", text, re.MULTILINE)
    # The module proxy lacks one version of the newest release of 1.32.
    others = {"k8s.io/endpointslice": "v0.32.12"} if release == RELEASES["1.32"] else {}
    staging = release.replace("v1.", "v0.")
    assert replaced == dict.fromkeys(replaced, staging) | others
    assert set(unreplaced) <= set(replaced)


@pytest.mark.parametrize("release", RELEASES.values())
def test_sums_are_committed_beside_the_module(release: str) -> None:
    assert Path(module_directory(release), "go.sum").stat().st_size > 0


def test_kubectl_is_among_the_programs() -> None:
    assert "kubectl" in PROGRAM_NAMES
