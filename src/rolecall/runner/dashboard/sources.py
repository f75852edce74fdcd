"""Where the page looks: the parts of a running operator, of which it only reads."""

from dataclasses import dataclass
from typing import Protocol

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.informer import Informer
from rolecall.runner.controller.manager import Manager
from rolecall.runner.dashboard.object_notes import KindNotes
from rolecall.runner.dashboard.views import kind_id
from rolecall.runner.election.held_shards import HeldShards
from rolecall.runner.proxy import Ownership
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.record.recorder import Recorder
from rolecall.system.clock import Clock


class WatchedKind(Protocol):
    """One watch at work; ``rolecall.runner.watch_controller.WatchController`` is one."""

    @property
    def watch(self) -> Watch:
        """The entry of ``watches.yaml``."""

    @property
    def controller(self) -> Controller:
        """Its work queue and its workers."""

    @property
    def primaries(self) -> Informer:
        """The informer of the kind."""

    @property
    def followed_dependents(self) -> frozenset[tuple[GVK, Ownership]]:
        """The kinds of dependents that have been seen."""

    def reads_of(self, key: ObjectKey) -> tuple[Target, ...]:
        """Return what wakes an object because its runs have read it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A watched kind and the notes of its objects."""

    watched: WatchedKind
    notes: KindNotes

    @classmethod
    def of(cls, watched: WatchedKind) -> "Kind":
        """Return a kind whose notes are made from now on; its informer must not run yet."""
        notes = KindNotes(watched.watch.selector)
        watched.primaries.subscribe(notes.on_change)
        return cls(watched, notes)

    @property
    def gvk(self) -> GVK:
        """The kind."""
        return self.watched.watch.gvk

    @property
    def id(self) -> str:
        """Its name in addresses."""
        return kind_id(self.gvk)


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to look at; without a recorder runs are not recorded."""

    version: str
    kinds: tuple[Kind, ...]
    manager: Manager
    clock: Clock
    recorder: Recorder | None = None
    shards: HeldShards | None = None

    def kind(self, ident: str) -> Kind | None:
        """Return the kind with an ID, None if it is not watched."""
        return next((kind for kind in self.kinds if kind.id == ident), None)

    def wall_time(self, monotonic: float) -> float:
        """Return a time of the queues' clock in seconds since the epoch."""
        return monotonic - self.clock.monotonic() + self.clock.now()

    def is_mine(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return whether this replica reconciles an object, or would if it worked."""
        return self.shards is None or self.shards.accepts(gvk)(key)
