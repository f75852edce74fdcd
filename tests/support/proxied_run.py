"""A run that keeps everything that the proxy reports to it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject
from rolecall.runner.proxy.sessions import Exchange, PendingRead, ProxiedRun, Read


@dataclass(slots=True, eq=False)
class ReportedRun(ProxiedRun):
    """A run of the proxy; ``register`` is called with its reads, ``record`` with its requests, ``name`` with names."""

    register: Callable[[Read], PendingRead | None] = lambda _read: None
    record: Callable[[Exchange], None] = lambda _exchange: None
    name: Callable[[str], None] = lambda _name: None
    groups: list[str] = field(default_factory=list)
    written: list[RawObject] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    dependents: list[tuple[GVK, Ownership]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    absent: set[tuple[str, str]] = field(default_factory=set)
    """The kinds and keys of the primaries that are known not to exist."""

    def about_to_write(self, group: str) -> None:
        """Keep the group of a write."""
        self.groups.append(group)

    def wrote(self, obj: RawObject) -> None:
        """Keep a written object."""
        self.written.append(obj)

    def deleted(self, uid: str) -> None:
        """Keep the uid of a deleted object."""
        self.removed.append(uid)

    def found_dependent(self, resource: ApiResource, ownership: Ownership) -> None:
        """Keep the kind of a dependent."""
        self.dependents.append((resource.gvk, ownership))

    def is_gone(self, kind: str, primary: str) -> bool:
        """Look in ``absent``."""
        return (kind, primary) in self.absent

    def reading(self, read: Read) -> PendingRead | None:
        """Pass on a read."""
        return self.register(read)

    def responded(self, info: RequestInfo, status: int, seen: tuple[SeenObject, ...] | None) -> None:  # noqa: ARG002
        """Pass on the name."""
        self.name(info.name)

    def exchanged(self, exchange: Exchange) -> None:
        """Keep a request."""
        self.exchanges.append(exchange)
        self.record(exchange)
