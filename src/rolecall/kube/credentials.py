"""The operator's credentials: the headers of a request, and the TLS context of a connection; both are renewed.

A source is a kubeconfig file or the pod's service account. It is loaded again because tokens expire, certificates are
renewed, and credential plugins issue new ones. The official client reads the files and runs the plugins; this module
decides when.

Credentials are renewed in the background, so that a slow or unresponsive credential plugin blocks no request while the
old credentials are valid. A request waits only if they have expired or were rejected (401). If they cannot be renewed,
the old ones are kept, and the reason is logged.
"""

import asyncio
import atexit
import datetime as dt
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
from yaml import YAMLError

from rolecall.kube.official_client import (
    ConfigException,
    Configuration,
    KubeConfigLoader,
    KubeConfigMerger,
    RESTClientObject,
    incluster_config,
)
from rolecall.kube.transport import http_proxy_of, text_of
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.files import ChangingFiles, OwnedDirectory
from rolecall.system.logs import get_logger

logger = get_logger("client")

PLUGIN_SECONDS = 60.0
"""The time limit of a credential plugin, except at the start, when it may ask a user to log in."""

CHECK_SECONDS: Final = 60.0
"""The interval of checks of files and expiry times."""

RENEWAL_SECONDS: Final = 90.0
"""The time limit of a renewal, including plugins and token services."""

AFTER_REJECTION_SECONDS: Final = 10.0
"""The minimum time between two renewals because of rejected credentials."""

_BEFORE_EXPIRY: Final = dt.timedelta(minutes=5)
"""When credentials of a plugin are renewed; the official client uses the same time."""

UNUSABLE: Final = (ConfigException, OSError, YAMLError, ValueError, aiohttp.ClientError)
"""The exceptions that an unusable configuration raises."""


class ConfigurationSource(Protocol):
    """Loads the configuration of the client, and decides when to load it again."""

    @property
    def origin(self) -> dict[str, str]:
        """What chose the cluster: the context, files, and the setting of a kubeconfig, or the service account."""

    @property
    def is_due(self) -> bool:
        """Whether credentials expire soon, or a file has changed since the last load. Reads no content."""

    @property
    def has_expired(self) -> bool:
        """Whether the credentials have expired."""

    async def load(self, *, ignores_cached: bool = False) -> Configuration:
        """Return the current configuration; with ``ignores_cached`` from new credentials.

        Raise ConfigException, OSError, ValueError, YAMLError, or aiohttp.ClientError from a token service.
        """


def source_of(kubeconfig: str | None) -> ConfigurationSource:
    """Return the source of a kubeconfig file, or of the first of KUBECONFIG, the service account and ~/.kube/config.

    Raise ConfigException if none of them exists.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if not chosen and "KUBERNETES_SERVICE_HOST" in os.environ:
        return ServiceAccount()
    paths = (
        [Path(part) for part in chosen.split(os.pathsep)] if chosen else [Path(os.path.expanduser("~/.kube/config"))]  # noqa: PTH111 - pathlib raises without a known home
    )
    if not any(os.path.exists(path) for path in paths):  # noqa: PTH110 - pathlib raises PermissionError
        unset = "" if chosen else "KUBECONFIG is not set, this is not a pod, and "
        hint = "set KUBECONFIG, or start a control plane with: rolecall cluster start"
        raise ConfigException(f"{unset}{os.pathsep.join(map(str, paths))} does not exist; {hint}")
    return Kubeconfig(paths, "--kubeconfig" if kubeconfig else "KUBECONFIG" if chosen else "default")


@contextmanager
def _official_client() -> Iterator[None]:
    """Raise ConfigException for what the official client raises for a file that is empty or isn't a kubeconfig."""
    try:
        yield
    except (AttributeError, LookupError, TypeError) as error:
        raise ConfigException(str(error) or repr(error)) from error


class ServiceAccount:
    """The service account of this pod; the kubelet renews its token long before it expires."""

    def __init__(self) -> None:
        self._files = ChangingFiles()
        self.has_expired = False
        self.origin = {"source": "service account"}

    @property
    def is_due(self) -> bool:
        """Whether the kubelet has renewed a file."""
        return self._files.have_changed

    async def load(self, *, ignores_cached: bool = False) -> Configuration:  # noqa: ARG002 - nothing is cached
        """Return the configuration of the service account."""
        names = incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME
        self._files.record(names)
        configuration = Configuration()
        with _official_client():
            incluster_config.InClusterConfigLoader(*names, try_refresh_token=False).load_and_set(configuration)
        return configuration


class Kubeconfig:
    """The current context of one or several kubeconfig files."""

    def __init__(self, paths: list[Path], source: str) -> None:
        self._paths = paths
        self.origin = {"source": source, "kubeconfig": os.pathsep.join(map(str, paths))}
        self._files, self._own_files = ChangingFiles(), ChangingFiles()
        self._loader: KubeConfigLoader | None = None
        self._user: dict[str, Any] = {}
        self._token_file: Path | None = None

    @property
    def is_due(self) -> bool:
        """Whether a file has changed, a plugin's credentials expire soon, or a token service has to be asked."""
        has_service = self._loader is not None and self._loader.provider is not None
        return has_service or self._files.have_changed or self._expires_within(_BEFORE_EXPIRY)

    @property
    def has_expired(self) -> bool:
        """Whether the credentials of a plugin have expired."""
        return self._expires_within(dt.timedelta())

    async def load(self, *, ignores_cached: bool = False) -> Configuration:
        """Return the configuration of the current context; a plugin runs again if its credentials expire soon."""
        is_first = self._loader is None
        if self._loader is None or ignores_cached or self._own_files.have_changed:
            self._loader = self._read()
        plugin = self._user.get("exec")
        if plugin and not is_first and plugin["command"] != "timeout":
            # The official client neither limits the time of a plugin nor stops it.
            limit = ["--foreground", "--kill-after=5", str(PLUGIN_SECONDS), plugin["command"]]
            plugin.update(command="timeout", args=[*limit, *(plugin.get("args") or [])])
        # Before the files are read, so that a write in the meantime counts as a change.
        self._files.record([*self._paths, *([self._token_file] if self._token_file else [])])
        configuration = Configuration()
        with _official_client():
            await self._loader.load_and_set(configuration)
        if plugin and not hasattr(self._loader, "token") and not configuration.cert_file:
            raise ConfigException("the credential plugin of the kubeconfig printed no credentials; its error is above")
        return configuration

    def _read(self) -> KubeConfigLoader:
        self._own_files.record(self._paths)
        directory = _certificates_directory()
        with _official_client():
            merged = KubeConfigMerger(os.pathsep.join(map(str, self._paths))).config
            loader = KubeConfigLoader(merged, config_base_path=None, temp_file_path=directory)
            self.origin["context"] = str(loader.current_context["name"])
            name = loader.current_context["context"].get("user")
            found = merged["users"].get_with_name(name, safe=True) if name else None
            self._user = {} if found is None else found.value["user"] or {}
        self._token_file = None
        if found is not None and "tokenFile" in self._user:
            self._token_file = Path(found.path).parent / self._user["tokenFile"]
        return loader

    def _expires_within(self, time: dt.timedelta) -> bool:
        expiry: dt.datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        return expiry is not None and expiry - time <= dt.datetime.now(dt.UTC)


@cache
def _certificates_directory() -> str:
    """Return the directory of certificates in a kubeconfig; the official client keeps them until the process exits."""
    directory = OwnedDirectory.make("rolecall-certificates-")
    atexit.register(directory.remove)
    return str(directory.path)


class Credentials:
    """The credentials in a configuration, renewed from its source if there is one; ``now`` is a monotonic clock.

    ``ssl_context`` is the TLS context for new connections. Raise ConfigException or OSError if the first credentials
    are unusable, ValueError if the proxy is.
    """

    def __init__(
        self,
        configuration: Configuration,
        source: ConfigurationSource | None = None,
        now: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._source, self._now = source, now
        self._host = configuration.host
        self._token = _token_of(configuration)
        self._tls_files = ChangingFiles()
        self.ssl_context = self._read_tls(configuration)
        self._renewal: asyncio.Task[None] | None = None
        self._is_rejected = False
        self._rejection_counts_at = self._now()
        self._check_at = self._now() + CHECK_SECONDS

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate the operator; none if it has a client certificate instead."""
        if self._source is not None:
            if self._renewal is None and self._must_renew(self._source):
                self._renewal = asyncio.create_task(self._renew(self._source, ignores_cached=self._is_rejected))
            if self._renewal is not None and (self._is_rejected or self._source.has_expired):
                await asyncio.wait({self._renewal})
        return {"authorization": self._token} if self._token else {}

    def reject(self) -> None:
        """Record that a 401 or the TLS handshake has rejected the credentials: the next request waits for new ones."""
        if self._source is not None and self._now() >= self._rejection_counts_at:
            self._rejection_counts_at = self._now() + AFTER_REJECTION_SECONDS
            self._is_rejected = True

    async def close(self) -> None:
        """Stop a renewal that is in progress."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    def _must_renew(self, source: ConfigurationSource) -> bool:
        if self._is_rejected:
            return True
        if self._now() < self._check_at and not source.has_expired:
            return False
        self._check_at = self._now() + CHECK_SECONDS
        return source.is_due or self._tls_files.have_changed

    async def _renew(self, source: ConfigurationSource, *, ignores_cached: bool) -> None:
        try:
            async with asyncio.timeout(RENEWAL_SECONDS):
                configuration = await source.load(ignores_cached=ignores_cached)
            self._use(configuration)
        except UNUSABLE as error:
            # No traceback: it would point into the official client.
            reason = text_of(error) if isinstance(error, aiohttp.ClientError) else str(error) or repr(error)
            logger.error("Failed to renew the credentials; keeping the old ones", error=reason)  # noqa: TRY400
        finally:
            self._renewal, self._is_rejected = None, False

    def _use(self, configuration: Configuration) -> None:
        if configuration.host != self._host:
            raise ConfigException(f"expected the API server {self._host}, found {configuration.host}: restart")
        if (token := _token_of(configuration)) != self._token:
            self._token = token
            logger.info("Renewed the credentials for the API server")
        if self._tls_files.have_changed or self._tls_files.files != _tls_files(configuration):
            self.ssl_context = self._read_tls(configuration)
            logger.info("Reloaded the certificates for the API server")

    def _read_tls(self, configuration: Configuration) -> ssl.SSLContext:
        files = ChangingFiles()
        files.record(_tls_files(configuration))
        context = _tls_context(configuration)
        self._tls_files = files  # not before: a half-written pair of certificate and key is read again
        return context


def _tls_context(configuration: Configuration) -> ssl.SSLContext:
    """Return the context that the official client creates, without its certificates if no connection is encrypted.

    Reading the certificates of the system takes OpenSSL 3.0 40 ms.
    """
    host = configuration.host
    if host.startswith("http:") and not http_proxy_of(host, configuration.proxy) and not _tls_files(configuration):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    return context


def _tls_files(configuration: Configuration) -> set[str]:
    return set(filter(None, (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)))


def _token_of(configuration: Configuration) -> str:
    """Return the value of the Authorization header, empty for none. Raise ConfigException for an invalid token."""
    token = str(configuration.api_key.get("BearerToken", "")).strip()
    if not token.isprintable():
        raise ConfigException("expected a token of one line, found a line break or another control character in it")
    return token
