"""What the proxy tells about the reads of a run, before they are answered and when they are.

Nothing may be lost between a read and the watch on what it has read. So the read is registered before it goes to the
API server, and its answer says afterwards what the run has seen. Which reads count is decided by who is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.request_info import READ_VERBS, RequestInfo
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

_READABLE: Final = frozenset({"", "status", "scale"})
"""The subresources that show the object itself."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of one object, or of a collection if the name in ``key`` is empty.

    ``key.namespace`` is empty for all namespaces and for cluster-scoped kinds. ``start`` is the resourceVersion from
    which a watch starts, empty for other reads and if it names none.
    """

    resource: ApiResource
    verb: str
    key: ObjectKey
    label_selector: str = ""
    start: str = ""


class PendingRead(Protocol):
    """A read that was registered and is not answered yet."""

    @property
    def needs_keys(self) -> bool:
        """Return whether the keys of the objects in a list matter."""

    def answered(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Take note of the answer: its status (0: none), and its JSON, None if it could not be read.

        ``keys`` are those of the objects in a list, None if they were not read.
        """


class ReadObserver(Protocol):
    """Is told about the reads of one run; must return at once."""

    def register(self, read: Read) -> PendingRead | None:
        """Take note of a read that is about to be sent, None if it does not matter."""


@dataclass(slots=True)
class Answer:
    """The answer to a read, as far as it is known."""

    needs_keys: bool = False
    status: int = 0
    content: Any = None
    keys: frozenset[ObjectKey] | None = None


@dataclass(frozen=True, slots=True)
class ReadTracking:
    """Tells the observer of a run about its reads."""

    client: Client

    async def register(self, observer: ReadObserver | None, info: RequestInfo, target: str) -> PendingRead | None:
        """Register a request if it is a read that somebody wants to know of."""
        if observer is None or not info.is_resource or info.verb not in READ_VERBS or info.subresource not in _READABLE:
            return None
        try:
            resource = await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError as error:
            resource = None
            logger.debug("Cannot discover the kind of a read", resource=info.resource, reason=str(error))
        return None if resource is None else observer.register(_read(resource, info, target))


@contextmanager
def tracked(pending: PendingRead | None) -> Iterator[Answer]:
    """Yield an answer to fill in; at the end of the request, however it ends, it is passed on."""
    answer = Answer(pending is not None and pending.needs_keys)
    try:
        yield answer
    finally:
        if pending is not None:
            pending.answered(answer.status, answer.content if answer.status == HTTPStatus.OK else None, answer.keys)


def _read(resource: ApiResource, info: RequestInfo, target: str) -> Read:
    query = dict(parse_qsl(target.partition("?")[2], keep_blank_values=True))
    key = info.key
    if resource.namespaced and not key.namespace:
        key = ObjectKey("", "")  # one name in all namespaces
    is_watch = info.verb == "watch"
    return Read(
        resource, info.verb, key, query.get("labelSelector", ""), query.get("resourceVersion", "") if is_watch else ""
    )
