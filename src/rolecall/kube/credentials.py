"""The operator's credentials: the headers of a request, and the TLS context of a connection; both are renewed.

They are renewed in the background, so that a credential plugin that takes its time, or hangs, holds back no request
while the old credentials are still good. A request waits only if they have expired or were refused (401). If they
cannot be renewed, the old ones are kept, and the reason is logged.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from yaml import YAMLError

from rolecall.kube.configuration import ChangingFiles, ConfigurationSource
from rolecall.kube.transport import http_proxy_of
from rolecall.system.logs import get_logger

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
