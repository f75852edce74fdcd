"""What an observer of a run is told about each exchange with the API server, and which task of the run asked.

A task names itself: what it appends to the run's secret is not a part of the secret, and is never forwarded. It is a
note for the record, not a credential: a run that appends something else lies to its own record and gains nothing. A
request whose secret has nothing appended belongs to the run, but to no task that is known.
"""

import base64
import binascii
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from rolecall.runner.proxy.forward import BodyCapture
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.trace_context import NO_CONTEXT, TraceContext
from rolecall.runner.proxy.upgrade import SWITCHING_PROTOCOLS, HijackedResponse

SEPARATOR: Final = "."
HIDDEN_MARK: Final = "hidden"
MAX_NOTE_CHARACTERS: Final = 1024
MAX_ANSWER_BYTES: Final = 8 << 20
"""A longer answer is forwarded but not kept."""

MAX_STREAM_BYTES: Final = 1 << 20
"""The same for a watch or a log."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The task that has sent a request, by Ansible's id of it, and its host; ``is_hidden`` if it may say no_log."""

    task: str = ""
    host: str = ""
    is_hidden: bool = False

    @classmethod
    def of_note(cls, note: str) -> "Asker":
        """Return the asker that a note names; an unreadable note names nobody."""
        task, _, rest = note[:MAX_NOTE_CHARACTERS].partition(SEPARATOR)
        host, _, mark = rest.partition(SEPARATOR)
        try:
            padded = host + "=" * (-len(host) % 4)
            return cls(task, base64.b64decode(padded, b"-_", validate=True).decode(), mark == HIDDEN_MARK)
        except (binascii.Error, ValueError):
            return cls()


NOBODY: Final = Asker()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a run and its answer.

    ``body`` is as the task sent it, ``sent`` as it was sent on if the proxy has changed it. ``status`` is None if the
    request ended without an answer. ``answer`` is None if there is none, or if it was not kept: ``is_cut`` tells.
    ``impersonated`` has the names and values of the headers by which the request acts as somebody else. ``context``
    says to which trace the request belongs.
    """

    asker: Asker
    method: str
    target: str
    info: RequestInfo
    started: float
    duration_seconds: float
    content_type: str = ""
    body: bytes = b""
    sent: bytes | None = None
    status: int | None = None
    answer_type: str = ""
    answer: bytes | None = None
    is_cut: bool = False
    impersonated: tuple[tuple[str, str], ...] = ()
    context: TraceContext = NO_CONTEXT


OnExchange = Callable[[Exchange], None]


class Observation:
    """Collects one exchange for an observer; without an observer it does nothing.

    Set ``body``, ``sent`` and ``context`` when they are known, and call ``finish`` once, with None if there is no
    response.
    """

    def __init__(self, observer: OnExchange | None, asker: Asker, request: web.BaseRequest, info: RequestInfo) -> None:
        self.body = b""
        self.sent: bytes | None = None
        self.context = NO_CONTEXT
        self._observer = observer
        self._asker, self._request, self._info = asker, request, info
        self._started, self._clock = time.time(), time.monotonic()
        self._capture: BodyCapture | None = None

    def capture(self, inspected: BodyCapture | None) -> BodyCapture | None:
        """Return the capture for an answer that is forwarded as it arrives: the given one, or one for the observer."""
        if self._observer is not None:
            limit = MAX_STREAM_BYTES if self._info.is_long_running else MAX_ANSWER_BYTES
            self._capture = inspected or BodyCapture(limit)
        return self._capture or inspected

    def finish(self, target: str, response: web.StreamResponse | None) -> None:
        """Tell the observer about the exchange."""
        if self._observer is None:
            return
        headers: Mapping[str, str] = self._request.headers
        answer, is_cut = self._answer(response)
        exchange = Exchange(
            asker=self._asker,
            method=self._request.method,
            target=target,
            info=self._info,
            started=self._started,
            duration_seconds=time.monotonic() - self._clock,
            content_type=headers.get("Content-Type", ""),
            body=self.body,
            sent=None if self.sent == self.body else self.sent,
            status=_status_of(response),
            answer_type="" if response is None else response.headers.get("Content-Type", ""),
            answer=answer,
            is_cut=is_cut,
            impersonated=tuple(each for each in headers.items() if each[0].lower().startswith("impersonate-")),
            context=self.context,
        )
        self._observer(exchange)

    def _answer(self, response: web.StreamResponse | None) -> tuple[bytes | None, bool]:
        if isinstance(response, web.Response) and isinstance(response.body, bytes | bytearray):
            return bytes(response.body), False
        if self._capture is None:
            return None, False
        return self._capture.body, response is None or self._capture.body is None


def _status_of(response: web.StreamResponse | None) -> int | None:
    if response is None:
        return None
    return SWITCHING_PROTOCOLS if isinstance(response, HijackedResponse) else response.status
