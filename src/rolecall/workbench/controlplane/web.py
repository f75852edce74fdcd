"""Opening URLs within a time that a person waits for.

A host that cannot be reached fails within OPEN_SECONDS, whatever hangs: the name service, one of many addresses, a
proxy or the TLS handshake. Nothing that was asked for over HTTPS is ever answered without it: a redirect that leaves
HTTPS is refused. Proxies are those of the environment, trusted authorities those of the system or of SSL_CERT_FILE.
"""

import http.client
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import IO, Generic, TypeVar

from rolecall.workbench.controlplane.errors import BinariesUnavailableError

OPEN_SECONDS = 8.0
STALL_SECONDS = 30.0
TEXT_BYTES = 4 * 1024 * 1024
ERRORS = (OSError, ValueError, http.client.HTTPException)

T = TypeVar("T")


class HostUnreachableError(BinariesUnavailableError):
    """A host does not answer, so asking it for the next file would only take time."""

    def __init__(self, url: str, reason: object) -> None:
        self.host = host_of(url)
        super().__init__(f"{self.host} cannot be reached: {reason}")


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0913, PLR0917 - the parameters of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.type == "https" and not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class InBackground(Generic[T]):
    """Does something in a thread of its own, and stops waiting for it when its time is over."""

    def __init__(self, action: Callable[[], T], seconds: float) -> None:
        """Begin at once. The thread is abandoned when the time is over: a name service cannot be interrupted."""
        self._answer: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        threading.Thread(target=self._run, args=(action,), daemon=True).start()

    def _run(self, action: Callable[[], T]) -> None:
        try:
            self._answer.put((action(), None))
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            self._answer.put((None, error))

    def result(self) -> T:
        """Give what the action gave, or raise what it raised; TimeoutError if it takes too long."""
        try:
            value, error = self._answer.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except Empty:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # without an error it is what the action gave


def host_of(url: str) -> str:
    """Give host and port of a URL."""
    return urllib.parse.urlsplit(url).netloc


def failure(url: str, error: Exception) -> BinariesUnavailableError:
    """Say what one of ERRORS means, and tell a host that does not answer from one that answers with an error."""
    if isinstance(error, urllib.error.HTTPError):
        return BinariesUnavailableError(f"{url}: HTTP status {error.code} {error.reason}")
    if isinstance(error, OSError):
        return HostUnreachableError(url, error.reason if isinstance(error, urllib.error.URLError) else error)
    return BinariesUnavailableError(f"{url}: {error}")


def open_url(url: str) -> http.client.HTTPResponse:
    """Open a URL; OSError if that is not possible in time."""
    return InBackground(lambda: _open(url), OPEN_SECONDS).result()


def begin_reading(url: str) -> InBackground[str]:
    """Begin to read a short text from a URL."""
    return InBackground(lambda: _read(url), OPEN_SECONDS)


def _open(url: str) -> http.client.HTTPResponse:
    opener = urllib.request.build_opener(_StayOnHttps)
    response: http.client.HTTPResponse = opener.open(url, timeout=STALL_SECONDS)
    return response


def _read(url: str) -> str:
    with _open(url) as response:
        return response.read(TEXT_BYTES).decode()
