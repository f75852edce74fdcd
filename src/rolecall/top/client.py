"""Reads the pages of the live page as JSON.

Every way in which that can fail is one sentence that says what was found, where, and what to do.
"""

import json
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from rolecall.page.guard import ACCESS_PATH, is_loopback
from rolecall.top.reading import ReadingError, printable, read_view

View = TypeVar("View")
TIMEOUT_SECONDS: Final = 10.0
MOST_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 16
_HELP: Final = (
    "start the operator with --ui-bind-address 127.0.0.1:8090 or, if it is in a cluster, forward its port: "
    "kubectl port-forward --namespace NAMESPACE deployment/NAME 8090"
)


class PageError(Exception):
    """The page cannot be read now; the message says why and what to do."""


class GoneError(PageError):
    """The operator has answered that there is no such object or run."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the live page is, and what it takes to read it."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    verifies: bool = True

    def tls(self) -> ssl.SSLContext | bool:
        """Return how to check the certificate of the operator. Raise PageError if the CA file cannot be used."""
        if not self.verifies:
            return False
        try:
            return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        except OSError as error:
            raise PageError(
                f"--ca-file: {self.ca_file}: {error.strerror or error}; give a file in PEM format"
            ) from None

    def headers(self) -> dict[str, str]:
        """Return the headers of a request. Raise PageError.

        The file is read each time, because tokens are renewed.
        """
        if self.token_file is None:
            return {"Accept": "application/json"}
        try:
            token = self.token_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise PageError(f"--token-file: {self.token_file}: {error}") from None
        if not token or not token.isprintable() or not token.isascii():
            raise PageError(f"--token-file: {self.token_file}: expected a token of one line")
        return {"Accept": "application/json", "Authorization": f"Bearer {token}"}


def problem_of(access: Access) -> str:
    """Return what is wrong with where the page is said to be, empty if nothing is."""
    try:
        parts = urlsplit(access.url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"argument --url: {error}: {access.url!r}"
    if parts.scheme not in ("http", "https") or not host:
        return f"argument --url: expected an address such as http://127.0.0.1:8090, found {access.url!r}"
    if access.token_file and parts.scheme == "http" and not is_loopback(host):
        return f"argument --token-file: a token is sent only by https or to this machine, found {access.url!r}"
    return ""


class PageClient:
    """Reads pages; to be used as a context manager."""

    def __init__(self, access: Access) -> None:
        self.url = access.url.rstrip("/")
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Make ready. Raise PageError if the CA file cannot be used."""
        connector = aiohttp.TCPConnector(ssl=self._access.tls(), limit=2)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def read(self, path: str, expected: type[View]) -> View:
        """Return the view at a path of the page. Raise PageError."""
        try:
            status, content_type, body = await self._get(path)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise PageError(self._unanswered(error)) from error
        value = _json(content_type, body)
        self._check(status, value, body)
        try:
            return read_view(expected, value)
        except ReadingError as error:
            raise PageError(
                f"what answers at {self.url} is not a live page of this version of rolecall: {error}; use the rolecall "
                "of the operator's version"
            ) from None

    async def _get(self, path: str) -> tuple[int, str, bytes]:
        if self._session is None:
            raise RuntimeError("the client was not entered")
        address, headers = URL(self.url + path, encoded=True), self._access.headers()
        async with self._session.get(address, headers=headers, allow_redirects=False) as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise PageError(f"what answers at {self.url} sends more than {MOST_BYTES >> 20} MiB")
            return response.status, response.content_type, bytes(body)

    def _unanswered(self, error: Exception) -> str:
        # Of these, errors of certificates are also errors of connections.
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = printable(str(error.certificate_error))
            return f"the certificate of {self.url} is not trusted: {reason}; give its CA with --ca-file"
        if isinstance(error, aiohttp.ClientSSLError):
            return f"what answers at {self.url} does not speak TLS; is it http:// instead of https://?"
        if isinstance(error, TimeoutError):
            return f"{self.url} has not answered for {TIMEOUT_SECONDS:g} s; {_HELP}"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"nothing answers at {self.url} ({error.os_error.strerror or error.os_error}); {_HELP}"
        return f"what answers at {self.url} does not speak HTTP, or has closed the connection; is it https://?"

    def _check(self, status: int, value: Any, body: bytes) -> None:
        """Raise PageError unless the answer is a page."""
        if status == HTTPStatus.UNAUTHORIZED:
            has = "does not accept the token" if self._access.token_file else "needs a token"
            raise PageError(
                f"the live page at {self.url} {has}: give one with --token-file FILE, such as 'kubectl create token' "
                f"prints, of an account that may get the path {ACCESS_PATH}"
            )
        if status == HTTPStatus.FORBIDDEN:
            raise PageError(
                f"the account of the token may not read the live page at {self.url}: it needs a ClusterRole with the "
                f"verb get on the nonResourceURL {ACCESS_PATH}"
            )
        if isinstance(value, dict) and isinstance(value.get("error"), str):
            raise GoneError(printable(value["error"]))
        if status != HTTPStatus.OK or not isinstance(value, dict):
            start = " ".join(printable(body[:80].decode(errors="replace")).split())
            raise PageError(
                f"what answers at {self.url} is not the live page of an operator: status {status}, {start!r}; {_HELP}"
            )


def _json(content_type: str, body: bytes) -> Any:
    """Return the value of an answer, None if it is not JSON."""
    if content_type != "application/json":
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
