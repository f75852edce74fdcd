import asyncio
import base64
import datetime as dt
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from kubernetes.aio.config import incluster_config

from rolecall.kube import credentials
from rolecall.kube.client import Client
from rolecall.kube.credentials import AFTER_REJECTION_SECONDS, CHECK_SECONDS, Credentials, source_of
from rolecall.kube.errors import ApiError, KubeError, UnreachableError
from rolecall.runner.proxy.forward import send
from rolecall.system import files
from rolecall.workbench.controlplane.certificates import CertificateAuthority
from tests.unit.kube.conftest import KEY, ONE, WIDGET, ApiServer, replace_file, serving, write_kubeconfig

PLUGIN = """#!/bin/sh
echo run >>{runs}
exec cat {response}
"""
SERVER = "http://127.0.0.1:1"
Text = dict[str, object]


class Guarded(ApiServer):
    """An API server that accepts one token."""

    def __init__(self) -> None:
        super().__init__()
        self.token = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request with the token, and reject all others."""
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)
        return await super().handle(request)


class Plugin:
    """A credential plugin that prints a token, and counts its runs."""

    def __init__(self, directory: Path) -> None:
        self._response, self._log, self._program = directory / "response", directory / "runs", directory / "plugin"
        self._log.touch()
        self._program.write_text(PLUGIN.format(runs=self._log, response=self._response))
        self._program.chmod(0o700)

    @property
    def user(self) -> Text:
        """The user of a kubeconfig with this plugin."""
        return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(self._program)}}

    @property
    def runs(self) -> int:
        """The number of its runs."""
        return len(self._log.read_text().splitlines())

    def set_token(self, token: str, lasting: dt.timedelta | None = None) -> None:
        """Print this token in later runs."""
        status = {"token": token}
        if lasting is not None:
            status["expirationTimestamp"] = (dt.datetime.now(dt.UTC) + lasting).strftime("%Y-%m-%dT%H:%M:%SZ")
        response = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        self._response.write_text(json.dumps(response))

    def block(self) -> None:
        """Print nothing and do not exit in later runs."""
        self._response.unlink()
        os.mkfifo(self._response)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


class Clock:
    """A monotonic clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def credentials_of(kubeconfig: str | None, clock: Callable[[], float]) -> Credentials:
    """Return the credentials of a kubeconfig."""
    source = source_of(kubeconfig)
    return Credentials(await source.load(), source, clock)


async def token_of(found: Credentials) -> str:
    """Return the token of the next request, and wait for a renewal that it has started."""
    token = (await found.headers())["authorization"].removeprefix("Bearer ")
    if found._renewal is not None:
        await asyncio.wait({found._renewal})
    return token


async def test_rejected_token_of_plugin_is_renewed(tmp_path: Path, plugin: Plugin) -> None:
    api_server = Guarded()
    plugin.set_token("first")
    async with serving(api_server.handle) as url:
        api_server.token = "first"  # noqa: S105 - opens nothing
        async with await Client.connect(write_kubeconfig(tmp_path, url, plugin.user)) as client:
            assert await client.get(WIDGET, KEY) == ONE
            plugin.set_token("second")
            api_server.token = "second"  # noqa: S105 - opens nothing
            with pytest.raises(ApiError, match="401"):
                await client.get(WIDGET, KEY)
            assert await client.get(WIDGET, KEY) == ONE
    assert plugin.runs == 2


async def test_token_rejected_for_run_is_renewed(tmp_path: Path, plugin: Plugin) -> None:
    api_server = Guarded()
    plugin.set_token("first")
    async with serving(api_server.handle) as url:
        api_server.token = "second"  # noqa: S105 - opens nothing
        async with await Client.connect(write_kubeconfig(tmp_path, url, plugin.user)) as client:
            plugin.set_token("second")
            assert [(await send(client, "GET", "/api", {})).status for _ in range(2)] == [401, 200]


async def test_plugin_does_not_run_for_every_rejection(tmp_path: Path, plugin: Plugin, clock: Clock) -> None:
    plugin.set_token("useless")
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, plugin.user), clock)
    for _ in range(5):
        found.reject()
        await token_of(found)
    assert plugin.runs == 2
    clock.now += AFTER_REJECTION_SECONDS
    found.reject()
    await token_of(found)
    assert plugin.runs == 3


async def test_expiring_token_is_renewed_in_background(tmp_path: Path, plugin: Plugin, clock: Clock) -> None:
    plugin.set_token("first", dt.timedelta(minutes=4))
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, plugin.user), clock)
    plugin.set_token("second", dt.timedelta(hours=1))
    assert await token_of(found) == "first"
    clock.now += CHECK_SECONDS
    assert await token_of(found) == "first"
    assert await token_of(found) == "second"
    clock.now += CHECK_SECONDS
    assert await token_of(found) == "second"
    assert plugin.runs == 2


async def test_request_waits_for_new_credentials_after_expiry(tmp_path: Path, plugin: Plugin, clock: Clock) -> None:
    plugin.set_token("first", dt.timedelta(minutes=-1))
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, plugin.user), clock)
    plugin.set_token("second", dt.timedelta(hours=1))
    assert await token_of(found) == "second"


async def test_unresponsive_plugin_blocks_no_request_and_is_stopped(
    tmp_path: Path, plugin: Plugin, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.kube.credentials.PLUGIN_SECONDS", 3)
    plugin.set_token("first", dt.timedelta(minutes=4))
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, plugin.user), clock)
    plugin.block()
    clock.now += CHECK_SECONDS
    assert await found.headers() == {"authorization": "Bearer first"}
    assert found._renewal is not None
    async with asyncio.timeout(20):
        await found._renewal
    assert plugin.runs == 2
    assert not [each for each in psutil.process_iter() if str(tmp_path) in " ".join(_command_line(each))]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


async def test_failed_renewal_keeps_old_credentials(
    tmp_path: Path, plugin: Plugin, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.set_token("first")
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, plugin.user), clock)
    (tmp_path / "response").write_text("malformed")
    found.reject()
    assert await token_of(found) == "first"
    assert "Failed to renew the credentials; keeping the old ones" in capsys.readouterr().out


async def test_failed_plugin_at_start_is_error(tmp_path: Path, plugin: Plugin) -> None:
    kubeconfig = write_kubeconfig(tmp_path, SERVER, plugin.user)
    with pytest.raises(KubeError, match="the credential plugin of the kubeconfig printed no credentials"):
        await Client.connect(kubeconfig)


async def test_bug_is_not_reported_as_unusable_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: str) -> None:
        raise AttributeError("a misspelled name")

    monkeypatch.setattr(files, "_state_of", fail)
    with pytest.raises(AttributeError, match="a misspelled name"):
        await Client.connect(write_kubeconfig(tmp_path, SERVER, {"token": "first"}))


async def test_changed_token_file_is_read_again(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "token").write_text("first\n")
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, {"tokenFile": "token"}), clock)
    assert await token_of(found) == "first"
    replace_file(tmp_path / "token", b"second\n")
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert await token_of(found) == "second"


async def test_changed_kubeconfig_is_read_again(tmp_path: Path, clock: Clock) -> None:
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, {"token": "first"}), clock)
    write_kubeconfig(tmp_path, SERVER, {"token": "second"})
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert await token_of(found) == "second"


async def test_credentials_are_not_sent_to_other_api_server(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await credentials_of(write_kubeconfig(tmp_path, SERVER, {"token": "first"}), clock)
    write_kubeconfig(tmp_path, "http://127.0.0.1:2", {"token": "second"})
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert await token_of(found) == "first"
    assert "expected the API server http://127.0.0.1:1, found http://127.0.0.1:2" in capsys.readouterr().out


async def test_changed_service_account_token_is_read_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_bytes(CertificateAuthority("one").own.certificate)
    found = await credentials_of(None, clock)
    assert await found.headers() == {"authorization": "bearer first"}
    replace_file(tmp_path / "token", b"second")
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert await found.headers() == {"authorization": "bearer second"}


async def test_token_with_line_break_is_error_at_start(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, SERVER, {"token": "one\ntwo"})
    with pytest.raises(KubeError, match="expected a token of one line"):
        await Client.connect(kubeconfig)


@pytest.mark.parametrize(
    ("server", "proxy", "count"),
    [("https://192.0.2.1", "", 1), ("http://192.0.2.1", "", 0), ("http://192.0.2.1", "https://192.0.2.2", 1)],
)
async def test_system_certificates_are_read_only_for_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, proxy: str, count: int
) -> None:
    (tmp_path / "system").write_bytes(CertificateAuthority("system").own.certificate)
    files = {"SSL_CERT_FILE": str(tmp_path / "system"), "SSL_CERT_DIR": str(tmp_path / "none")}
    for variable, value in {**files, "http_proxy": proxy, "no_proxy": ""}.items():
        monkeypatch.setenv(variable, value)
    found = await credentials_of(write_kubeconfig(tmp_path, server, {"token": "one"}), time.monotonic)
    assert found.ssl_context.cert_store_stats()["x509_ca"] == count


def server_context(authority: CertificateAuthority, directory: Path) -> ssl.SSLContext:
    """Return the TLS context of an API server that requires a client certificate of this authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.own.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    pair = authority.server("127.0.0.1")
    (directory / "server.pem").write_bytes(pair.key + pair.certificate)
    context.load_cert_chain(directory / "server.pem")
    return context


async def test_changed_certificates_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority of the API server, and the certificate of the operator."""
    monkeypatch.setattr(credentials, "CHECK_SECONDS", 0.0)

    def renew(authority: CertificateAuthority) -> None:
        pair = authority.client("operator")
        for name, content in (("ca", authority.own.certificate), ("cert", pair.certificate), ("key", pair.key)):
            replace_file(tmp_path / name, content)

    old, new = CertificateAuthority("old"), CertificateAuthority("new")
    renew(old)
    user: Text = {"client-certificate": "cert", "client-key": "key"}
    async with serving(ApiServer().handle, server_context(old, tmp_path)) as url:
        kubeconfig = write_kubeconfig(tmp_path, url, user, **{"certificate-authority": "ca"})
        client = await Client.connect(kubeconfig)
        assert await client.get(WIDGET, KEY) == ONE
    async with client, serving(ApiServer().handle, server_context(new, tmp_path), int(url.rpartition(":")[2])):
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get(WIDGET, KEY)
        renew(new)
        await check_files(client)
        assert await client.get(WIDGET, KEY) == ONE
        assert (await send(client, "GET", "/apis/example.com/v1", {})).status == 200


async def test_failed_handshake_reads_changed_certificates_before_the_next_request(tmp_path: Path) -> None:
    """Otherwise, it would fail until the next check of the files."""
    old, new = CertificateAuthority("old"), CertificateAuthority("new")
    pair = new.client("operator")
    for name, content in (("ca", old.own.certificate), ("cert", pair.certificate), ("key", pair.key)):
        replace_file(tmp_path / name, content)
    user: Text = {"client-certificate": "cert", "client-key": "key"}
    async with serving(ApiServer().handle, server_context(new, tmp_path)) as url:
        client = await Client.connect(write_kubeconfig(tmp_path, url, user, **{"certificate-authority": "ca"}))
        async with client:
            with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(WIDGET, KEY)
            replace_file(tmp_path / "ca", new.own.certificate)
            assert await client.get(WIDGET, KEY) == ONE


async def check_files(client: Client) -> None:
    """Let a client check its files."""
    await client.auth_headers()
    if client._credentials._renewal is not None:
        await asyncio.wait({client._credentials._renewal})


async def test_half_written_certificate_is_read_again_later(tmp_path: Path, clock: Clock) -> None:
    """Until then the old one is used; a new token does not wait for it."""
    pair = CertificateAuthority("one").client("operator")
    (tmp_path / "cert").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    user: Text = {"client-certificate": "cert", "client-key": "key"}
    server = "https://127.0.0.1:1"
    found = await credentials_of(write_kubeconfig(tmp_path, server, {**user, "token": "first"}), clock)
    old = found.ssl_context
    renewed = CertificateAuthority("two").client("operator")
    (tmp_path / "cert").write_bytes(renewed.certificate)
    write_kubeconfig(tmp_path, server, {**user, "token": "second"})
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert await token_of(found) == "second"
    assert found.ssl_context is old
    (tmp_path / "key").write_bytes(renewed.key)
    clock.now += CHECK_SECONDS
    await token_of(found)
    assert found.ssl_context is not old


LOAD = """
import asyncio, os, signal, sys
from rolecall.kube.credentials import source_of
print(asyncio.run(source_of(sys.argv[1]).load()).ssl_ca_cert)
if sys.argv[2]:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def load(kubeconfig: str, temporary: Path, *, killed: bool = False) -> Path:
    """Load a kubeconfig in a separate process; return the path of the certificate."""
    command = [sys.executable, "-c", LOAD, kubeconfig, "x" if killed else ""]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
    return Path(done.stdout.strip())


def test_certificates_of_kubeconfig_are_removed(tmp_path: Path) -> None:
    certificate = {"certificate-authority-data": "QUJD"}
    kubeconfig = write_kubeconfig(tmp_path, "https://it", {"token": "secret"}, **certificate)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    left = load(kubeconfig, temporary, killed=True)
    assert left.read_bytes() == base64.b64decode("QUJD")
    assert left.parent.stat().st_mode & 0o777 == 0o700
    load(kubeconfig, temporary)
    assert list(temporary.iterdir()) == []
