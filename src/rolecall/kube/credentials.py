"""The operator's credentials: the headers of a request, and the TLS context of a connection; both are renewed.

They are renewed in the background, so that a credential plugin that takes its time, or hangs, holds back no request
while the old credentials are still good. A request waits only if they have expired or were refused (401). If they
cannot be renewed, the old ones are kept, and the reason is logged.

Where the API server is, and who the operator is there: from a kubeconfig file, or from the pod's service account.

Both can be loaded again: tokens expire, certificates are renewed, and a credential plugin is asked for new ones. The
official client reads the files and runs the plugins; this module knows when it has to.
"""

import asyncio
import atexit
import datetime as dt
import os
import ssl
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, incluster_config
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from yaml import YAMLError

from rolecall.kube.transport import http_proxy_of
from rolecall.system.files import OwnedDirectory
from rolecall.system.logs import get_logger

_EARLY: Final = dt.timedelta(minutes=5)
"""How long before their end credentials of a plugin are renewed; the official client has the same time."""

PLUGIN_SECONDS = 60.0
"""How long a credential plugin may take; at the start, when it may ask a user to log in, it may take any time."""

_Signature = tuple[int, int, int] | None


class ConfigurationSource(Protocol):
    """Loads the configuration of the client, and knows when to load it again."""

    @property
    def is_due(self) -> bool:
        """Whether credentials expire soon, or a file has changed since the last load. Reads no content."""

    @property
    def has_expired(self) -> bool:
        """Whether the credentials are known to be useless."""

    async def load(self, *, anew: bool = False) -> Configuration:
        """Return the current configuration; with ``anew`` trust no credentials that were loaded before.

        Raise ConfigException, OSError, TypeError, ValueError, YAMLError, or aiohttp.ClientError from a token service.
        """


def source_of(kubeconfig: str | None) -> ConfigurationSource:
    """Return the source of a kubeconfig file, or of the first of KUBECONFIG, the service account and ~/.kube/config.

    Raise ConfigException if none of them exists.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if not chosen and "KUBERNETES_SERVICE_HOST" in os.environ:
        return ServiceAccount()
    paths = [Path(part) for part in chosen.split(os.pathsep)] if chosen else [Path.home() / ".kube" / "config"]
    if not any(path.exists() for path in paths):
        unset = "" if chosen else "KUBECONFIG is not set, this is not a pod, and "
        hint = "set KUBECONFIG, or start a control plane with: rolecall cluster start"
        raise ConfigException(f"{unset}{os.pathsep.join(map(str, paths))} does not exist; {hint}")
    return Kubeconfig(paths)


class ServiceAccount:
    """The service account of this pod; the kubelet renews its token long before it expires."""

    def __init__(self) -> None:
        self._files = ChangingFiles()
        self.has_expired = False

    @property
    def is_due(self) -> bool:
        """Whether the kubelet has renewed a file."""
        return self._files.have_changed

    async def load(self, *, anew: bool = False) -> Configuration:  # noqa: ARG002 - it is always read anew
        """Return the configuration of the service account."""
        names = incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME
        self._files.note(map(Path, names))
        configuration = Configuration()
        incluster_config.InClusterConfigLoader(*names, try_refresh_token=False).load_and_set(configuration)
        return configuration


class Kubeconfig:
    """The current context of one or several kubeconfig files."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._files, self._own_files = ChangingFiles(), ChangingFiles()
        self._loader: KubeConfigLoader | None = None
        self._user: dict[str, Any] = {}
        self._token_file: Path | None = None

    @property
    def is_due(self) -> bool:
        """Whether a file has changed, a plugin's credentials expire soon, or only a token service can tell."""
        asks_service = self._loader is not None and self._loader.provider is not None
        return asks_service or self._files.have_changed or self._expires_within(_EARLY)

    @property
    def has_expired(self) -> bool:
        """Whether the credentials of a plugin have expired."""
        return self._expires_within(dt.timedelta())

    async def load(self, *, anew: bool = False) -> Configuration:
        """Return the configuration of the current context; a plugin is asked again if its credentials expire soon."""
        is_first = self._loader is None
        if self._loader is None or anew or self._own_files.have_changed:
            self._loader = self._read()
        if not is_first:
            self._limit_plugin()
        # Before they are read, so that what is written meanwhile counts as a change.
        self._files.note([*self._paths, *([self._token_file] if self._token_file else [])])
        configuration = Configuration()
        await self._loader.load_and_set(configuration)
        if "exec" in self._user and not hasattr(self._loader, "token") and not configuration.cert_file:
            raise ConfigException("the credential plugin of the kubeconfig gave no credentials; its error is above")
        return configuration

    def _read(self) -> KubeConfigLoader:
        self._own_files.note(self._paths)
        merged = KubeConfigMerger(os.pathsep.join(map(str, self._paths))).config
        loader = KubeConfigLoader(merged, config_base_path=None, temp_file_path=_certificates_directory())
        name = loader.current_context["context"].get("user")
        found = merged["users"].get_with_name(name, safe=True) if name else None
        self._user = {} if found is None else found.value["user"] or {}
        self._token_file = None
        if found is not None and "tokenFile" in self._user:
            self._token_file = Path(found.path).parent / self._user["tokenFile"]
        return loader

    def _limit_plugin(self) -> None:
        """Let ``timeout`` run the plugin: the official client neither limits its time nor ends it."""
        plugin = self._user.get("exec")
        if plugin and plugin["command"] != "timeout":
            limit = ["--foreground", "--kill-after=5", str(PLUGIN_SECONDS), plugin["command"]]
            plugin.update(command="timeout", args=[*limit, *(plugin.get("args") or [])])

    def _expires_within(self, time: dt.timedelta) -> bool:
        expiry: dt.datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        return expiry is not None and expiry - time <= dt.datetime.now(dt.UTC)


@cache
def _certificates_directory() -> str:
    """Return where the official client puts certificates that a kubeconfig contains; it keeps them for the process."""
    directory = OwnedDirectory.make("rolecall-certificates-")
    atexit.register(directory.remove)
    return str(directory.path)


class ChangingFiles:
    """Files that somebody else replaces, and how they were when they were read."""

    def __init__(self) -> None:
        self._signatures: dict[Path, _Signature] = {}

    def note(self, files: Iterable[Path]) -> None:
        """Take note of files that are about to be read."""
        self._signatures = {file: _signature(file) for file in files}

    @property
    def files(self) -> set[Path]:
        """The files."""
        return set(self._signatures)

    @property
    def have_changed(self) -> bool:
        """Whether one of the files has been replaced or written since then."""
        return any(_signature(file) != signature for file, signature in self._signatures.items())


def _signature(file: Path) -> _Signature:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


logger = get_logger("client")

CHECK_SECONDS: Final = 60.0
"""How often files and expiry times are looked at."""

RENEWAL_SECONDS: Final = 90.0
"""How long a renewal may take, with whatever it asks."""

AFTER_REFUSAL_SECONDS: Final = 10.0
"""How long after credentials were refused they are renewed for that reason again."""

UNUSABLE = (
    ConfigException,
    OSError,
    YAMLError,
    aiohttp.ClientError,
    # From the official client, for a file that is empty or has another form than a kubeconfig:
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a configuration that cannot be used raises."""


class Credentials:
    """The credentials in a configuration, renewed from its source if there is one; ``now`` is a monotonic clock.

    ``ssl_context`` is the TLS context for new connections. Raise ConfigException or OSError if the first credentials
    cannot be used, ValueError if the proxy cannot.
    """

    def __init__(
        self,
        configuration: Configuration,
        source: ConfigurationSource | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._now = source, now
        self._host = configuration.host
        self._token = _token_of(configuration)
        self._tls_files = ChangingFiles()
        self.ssl_context = self._read_tls(configuration)
        self._renewal: asyncio.Task[None] | None = None
        self._is_refused = False
        self._refusal_counts_at = self._now()
        self._check_at = self._now() + CHECK_SECONDS

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate the operator; none if it has a client certificate instead."""
        if self._source is not None and self._renewal is None and self._must_renew(self._source):
            self._renewal = asyncio.create_task(self._renew(self._source, anew=self._is_refused))
        if self._renewal is not None and (self._is_refused or (self._source is not None and self._source.has_expired)):
            await asyncio.wait({self._renewal})
        return {"authorization": self._token} if self._token else {}

    def refused(self) -> None:
        """Take note that the API server does not know the credentials (401): the next request waits for new ones."""
        if self._source is not None and self._now() >= self._refusal_counts_at:
            self._refusal_counts_at = self._now() + AFTER_REFUSAL_SECONDS
            self._is_refused = True

    async def close(self) -> None:
        """End a renewal that is going on."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    def _must_renew(self, source: ConfigurationSource) -> bool:
        if self._is_refused:
            return True
        if self._now() < self._check_at and not source.has_expired:
            return False
        self._check_at = self._now() + CHECK_SECONDS
        return source.is_due or self._tls_files.have_changed

    async def _renew(self, source: ConfigurationSource, *, anew: bool) -> None:
        try:
            async with asyncio.timeout(RENEWAL_SECONDS):
                configuration = await source.load(anew=anew)
            self._use(configuration)
        except UNUSABLE as error:
            logger.error("Could not renew the credentials; keeping the old ones", error=str(error) or repr(error))  # noqa: TRY400
        finally:
            self._renewal, self._is_refused = None, False

    def _use(self, configuration: Configuration) -> None:
        if configuration.host != self._host:
            raise ConfigException(f"expected the API server {self._host}, found {configuration.host}: start again")
        if (token := _token_of(configuration)) != self._token:
            self._token = token
            logger.info("Renewed the credentials for the API server")
        if self._tls_files.have_changed or self._tls_files.files != _tls_files(configuration):
            self.ssl_context = self._read_tls(configuration)
            logger.info("Read the certificates for the API server again")

    def _read_tls(self, configuration: Configuration) -> ssl.SSLContext:
        files = ChangingFiles()
        files.note(_tls_files(configuration))
        context = _tls_context(configuration)
        self._tls_files = files  # not before: a pair of certificate and key that is half written is read again
        return context


def _tls_context(configuration: Configuration) -> ssl.SSLContext:
    """Return the context that the official client makes, without its certificates if no connection is encrypted.

    To read the certificates of the system takes OpenSSL 3.0 a 25th of a second.
    """
    host = configuration.host
    if host.startswith("http:") and not http_proxy_of(host, configuration.proxy) and not _tls_files(configuration):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    return context


def _tls_files(configuration: Configuration) -> set[Path]:
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return {Path(file) for file in files if file}


def _token_of(configuration: Configuration) -> str:
    """Return the value of the Authorization header, empty if there is none. Raise ConfigException."""
    token = str(configuration.api_key.get("BearerToken", "")).strip()
    if not token.isprintable():
        raise ConfigException("expected a token of one line, found a line break or another control character in it")
    return token
