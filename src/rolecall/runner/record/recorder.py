"""The recorder of an operator: starts the record of each run, and keeps and writes it when the run has ended.

A record is never a reason for a run to fail: what goes wrong here is logged, and the run goes on.

The last records of each object, in memory, within a budget.

What does not fit any more goes: first the earlier records of objects that have a newer one, then the record that was
stored longest ago. A record that is larger than the budget is not kept.

One line about each of the last runs of every object: when, how long, why, and how it ended.

A line takes a few hundred bytes where a record takes many thousands, so there are lines of all objects when memory has
records of only some. The lines have no values of objects. The last line of an object stays for as long as the object.

Which code a run has worked with: a digest of its role's files, and the versions of the Kubernetes collections.

The entry of a watch as it stands in a record: whatever of it decides what a run does.
"""

import hashlib
import json
import os
import re
import stat
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.environment import decisive_settings
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.access import AccessSet
from rolecall.runner.record.document import Document, Surroundings, document_of, mask_of
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.masking import Mask, texts_in
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.runs.content import contents_of, directories_of, files_of
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

_Object = tuple[GVK, ObjectKey]


@dataclass(slots=True)
class RecordMemory:
    """The last records, ``most_runs`` of each object; with a budget of 0 bytes none is kept."""

    budget_bytes: int
    bodies: Bodies = field(default_factory=Bodies)
    most_runs: int = 1
    _last: OrderedDict[_Object, RunRecord] = field(default_factory=OrderedDict)
    _earlier: OrderedDict[tuple[_Object, str], RunRecord] = field(default_factory=OrderedDict)
    _runs: dict[_Object, list[RunRecord]] = field(default_factory=dict)
    """The records of each object, the oldest first."""
    _entries_bytes: int = 0

    def add(self, record: RunRecord) -> None:
        """Keep a record of a run that has ended."""
        obj = record.gvk, record.key
        before = self._last.pop(obj, None)
        if before is not None:
            self._earlier[obj, before.ident] = before
        self._last[obj] = record
        runs = self._runs.setdefault(obj, [])
        runs.append(record)
        self._entries_bytes += record.size_bytes
        if len(runs) > self.most_runs:
            self._drop(runs[0])
        while self._last and self._entries_bytes + self.bodies.stored_bytes > self.budget_bytes:
            self._drop(next(iter((self._earlier or self._last).values())))

    def get(self, gvk: GVK, key: ObjectKey) -> RunRecord | None:
        """Return the last record of an object, None if there is none."""
        return self._last.get((gvk, key))

    def runs(self, gvk: GVK, key: ObjectKey) -> tuple[RunRecord, ...]:
        """Return the records of an object, the oldest first."""
        return tuple(self._runs.get((gvk, key), ()))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the records of an object."""
        for record in self.runs(gvk, key):
            self._drop(record)

    def _drop(self, record: RunRecord) -> None:
        obj = record.gvk, record.key
        if self._earlier.pop((obj, record.ident), None) is None:
            del self._last[obj]
        runs = self._runs[obj]
        runs.remove(record)
        if not runs:
            del self._runs[obj]
        self._entries_bytes -= record.size_bytes
        record.drop()


MOST_RUNS: Final = 20
"""How many lines there are of one object."""

MOST_EARLIER: Final = 20_000
"""How many lines there are, of all objects, besides their last ones."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """What is said about a run; ``started`` is in seconds since the epoch."""

    ident: str
    started: float
    seconds: float
    outcome: str
    causes: tuple[str, ...]
    tasks: int
    requests: int

    @classmethod
    def of(cls, record: RunRecord) -> "RunLine":
        """Return the line for a run that has ended."""
        ending = record.ending
        summary = ending.summary if ending else None
        return cls(
            ident=record.ident,
            started=record.started.timestamp(),
            seconds=round(summary.duration_seconds, 3) if summary else 0.0,
            outcome=ending.outcome if ending else "unknown",
            causes=record.causes,
            tasks=len(record.tasks),
            requests=len(record.exchanges),
        )


@dataclass(slots=True)
class RunHistory:
    """The lines about the last runs."""

    most_earlier: int = MOST_EARLIER
    _lines: dict[_Object, deque[RunLine]] = field(default_factory=dict)
    _with_earlier: deque[_Object] = field(default_factory=deque)
    """An object for each line that is not its last one, in their order; some of the lines may be gone already."""

    def add(self, record: RunRecord) -> None:
        """Add the line for a run that has ended."""
        obj = record.gvk, record.key
        lines = self._lines.setdefault(obj, deque(maxlen=MOST_RUNS))
        if lines:
            self._with_earlier.append(obj)
        lines.append(RunLine.of(record))
        while len(self._with_earlier) > self.most_earlier:
            oldest = self._lines.get(self._with_earlier.popleft())
            if oldest is not None and len(oldest) > 1:
                oldest.popleft()

    def last(self, gvk: GVK, key: ObjectKey) -> RunLine | None:
        """Return the line about the last run of an object, None if it had none."""
        lines = self._lines.get((gvk, key))
        return lines[-1] if lines else None

    def of(self, gvk: GVK, key: ObjectKey) -> tuple[RunLine, ...]:
        """Return the lines about an object, the newest first."""
        return tuple(reversed(self._lines.get((gvk, key), ())))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the lines about an object that is gone."""
        self._lines.pop((gvk, key), None)


_COLLECTIONS: Final = ("kubernetes.core", "operator_sdk.util", "community.okd")
_State = tuple[str, Path, int, int]


def digest_of_content(contents: Iterable[Content]) -> str:
    """Return a digest of the files of roles and playbooks, by their names and content. Blocks."""
    return _digest(tuple(state for content in contents for state in sorted(_states(content))))


def _states(content: Content) -> Iterator[_State]:
    """Yield each file's name and what changes when the file does; what cannot be read to its end does not count."""
    base = next(directories_of(content))
    for path in files_of(content):
        try:
            found = path.stat()
        except FileNotFoundError:  # a link to nowhere, or removed meanwhile
            continue
        if stat.S_ISREG(found.st_mode):
            yield os.path.relpath(path, base), path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _digest(states: tuple[_State, ...]) -> str:
    digest = hashlib.sha256()
    for name, path, _, _ in states:
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


@lru_cache(maxsize=1)
def collections_near() -> dict[str, str]:
    """Return the versions of the collections by which roles reach Kubernetes, as far as they are on Python's path."""
    found = {}
    package = find_spec("ansible_collections")
    for root in (package.submodule_search_locations or ()) if package else ():
        for name in _COLLECTIONS:
            manifest = Path(root, *name.split("."), "MANIFEST.json")
            if manifest.is_file():
                found[name] = str(json.loads(manifest.read_text())["collection_info"]["version"])
    return found


def entry_of(watch: Watch) -> dict[str, Any]:
    """Return the keys of a watch that a run depends on, by their names in ``watches.yaml``."""
    finalizer = watch.finalizer
    return {
        "group": watch.gvk.group,
        "version": watch.gvk.version,
        "kind": watch.gvk.kind,
        **_content(watch.content),
        "vars": dict(watch.variables),
        "manageStatus": watch.manage_status,
        "snakeCaseParameters": watch.snake_case_parameters,
        "markUnsafe": watch.mark_unsafe,
        "allowVariables": sorted(watch.allow_variables),
        "finalizer": None
        if finalizer is None
        else {
            "name": finalizer.name,
            **(_content(finalizer.content) if finalizer.content else {}),
            "vars": dict(finalizer.variables),
        },
        "status": {name: str(path) for name, path in watch.status.items()},
    }


def _content(content: Content) -> dict[str, str]:
    return {"role" if isinstance(content, RoleContent) else "playbook": str(content.path)}


logger = get_logger("record")

ROOM_BYTES: Final = 16 << 20
"""What the bodies of one run may take at least, if its record is only written to a file."""

RUNS_WITH_PAGE: Final = 10
"""How many records of an object memory has at most, if there is a live page to look at them."""

_TELLING: Final = re.compile(r"pass|secret|token|credential|api_?key|private_?key", re.IGNORECASE)
"""Names of variables whose values are taken for secrets."""

_MIN_SECRET: Final = 6


@dataclass(slots=True)
class Recorder:
    """Records the runs of all kinds."""

    client: Client
    memory: RecordMemory
    files: RecordFiles | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    access_sets: dict[GVK, AccessSet] = field(default_factory=dict)
    history: RunHistory | None = None
    """The lines about the last runs, for the live page."""

    @classmethod
    def of_settings(cls, settings: Settings, client: Client) -> "Recorder | None":
        """Return the recorder that the settings ask for, None if runs are not recorded."""
        if not settings.record_memory_bytes and settings.record_directory is None:
            return None
        directory, keep = settings.record_directory, settings.record_directory_max_bytes
        files = None if directory is None else RecordFiles(directory, keep)
        memory = RecordMemory(settings.record_memory_bytes)
        if not settings.has_ui:
            return cls(client, memory, files)
        memory.most_runs = RUNS_WITH_PAGE
        return cls(client, memory, files, history=RunHistory())

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Start the record of a run."""
        return RunRecord(
            gvk=watch.gvk,
            obj=obj,
            ident=ident,
            bodies=self.memory.bodies,
            room_bytes=max(self.memory.budget_bytes, ROOM_BYTES),
            causes=tuple(cause.text for cause in causes),
        )

    async def finish(self, watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Keep the record of a run that has ended."""
        record.ending = ending
        try:
            await self._finish(watch, record)
        except OSError as error:
            logger.warning("Could not write the record of a run", error=str(error), job=record.ident)
        except Exception as error:  # noqa: BLE001 - a record must not fail a run
            # Not its text, in which there may be a secret: the type and the place must do.
            place = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            logger.warning("Could not write the record of a run", error=reason, job=record.ident)
        if self.history is not None:
            self.history.add(record)
        self.memory.add(record)

    async def mask_of(self, watch: Watch, record: RunRecord) -> Mask:
        """Return the mask of the secret values that a run has met, before its record is finished."""
        surroundings = Surroundings(secrets=self._secrets(watch, record, await self._own_token()))
        return await run_in_thread(lambda: mask_of(record, surroundings))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the record of an object that is gone from memory."""
        self.memory.forget(gvk, key)
        if self.history is not None:
            self.history.forget(gvk, key)

    async def document(self, watch: Watch, record: RunRecord) -> Document:
        """Return a record that is in memory as it may leave the operator, with its secrets masked."""
        snapshot = record.snapshot()
        resources, token = await self._resources(snapshot), await self._own_token()
        return await run_in_thread(partial(self._document, watch, snapshot, resources, token))

    async def _finish(self, watch: Watch, record: RunRecord) -> None:
        access = self.access_sets.setdefault(watch.gvk, AccessSet(watch.gvk, str(watch.content.path)))
        if self.files is None:
            access.add(record)
            return
        resources, token = await self._resources(record), await self._own_token()
        document = await run_in_thread(partial(self._write, self.files, watch, record, resources, token))
        if access.add(record, document.hides) or not access.is_written:
            plurals = await self._plurals(watch)
            await run_in_thread(partial(self.files.write_access, watch.gvk, access.to_json(plurals)))
            access.is_written = True

    def _write(
        self, files: RecordFiles, watch: Watch, record: RunRecord, resources: tuple[ApiResource, ...], token: list[str]
    ) -> Document:
        document = self._document(watch, record, resources, token)
        path = files.write(record, document)
        logger.debug("Record written", file=str(path), job=record.ident)
        return document

    def _document(
        self, watch: Watch, record: RunRecord, resources: tuple[ApiResource, ...], token: list[str]
    ) -> Document:
        surroundings = Surroundings(
            watch=entry_of(watch),
            versions=_versions(watch, self.environment),
            secrets=self._secrets(watch, record, token),
            resources=resources,
        )
        return document_of(record, surroundings)

    def _secrets(self, watch: Watch, record: RunRecord, token: list[str]) -> tuple[str, ...]:
        return (*secret_texts(watch, self.environment), *marked_texts(watch, record.obj), *token)

    async def _own_token(self) -> list[str]:
        """Return the operator's token for the API server, if it has one: a role can read the file it comes from."""
        headers = await self.client.auth_headers()
        token = headers.get("authorization", "").partition(" ")[2]
        return [token] if token else []

    async def _plurals(self, watch: Watch) -> dict[GVK, str]:
        """Return the plural names of the kinds in a watch, as far as the API server serves them."""
        found = {}
        for gvk in _kinds(watch):
            with suppress(KubeError):
                found[gvk] = (await self.client.resource(gvk)).plural
        return found

    async def _resources(self, record: RunRecord) -> tuple[ApiResource, ...]:
        """Return the kind of the primary and those that the run has asked for, as far as the API server serves them."""
        infos = [kept.exchange.info for kept in record.exchanges]
        found = []
        with suppress(KubeError):
            found.append(await self.client.resource(record.gvk))
        for group, name, plural in sorted({(each.group, each.version, each.resource) for each in infos}):
            try:
                resource = await self.client.resource_for_path(group, name, plural) if plural else None
            except KubeError:
                resource = None
            found += [resource] if resource and resource not in found else []
        return tuple(found)


def _kinds(watch: Watch) -> set[GVK]:
    return {watch.gvk, *(trigger.gvk for trigger in watch.triggers)}


def secret_texts(watch: Watch, environment: Mapping[str, str]) -> list[str]:
    """Return the values that are secret by the names of their variables: of the environment and of a watch's vars."""
    finalizer = watch.finalizer.variables if watch.finalizer else {}
    texts = (text for named in (environment, watch.variables, finalizer) for text in _told(named, is_secret=False))
    return [text for text in texts if len(text) >= _MIN_SECRET and not text.startswith("/")]


def _told(value: Any, *, is_secret: bool) -> Iterator[str]:
    """Yield the texts and numbers that are below a telling name, or beside one in ``{name: …, value: …}``."""
    if isinstance(value, Mapping):
        named = {"value"} if _TELLING.search(str(value.get("name", ""))) else set()
        for name, inner in value.items():
            yield from _told(inner, is_secret=is_secret or name in named or bool(_TELLING.search(str(name))))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _told(inner, is_secret=is_secret)
    elif is_secret and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def marked_texts(watch: Watch, obj: RawObject) -> list[str]:
    """Return the texts of an object that the watch marks as sensitive."""
    found = (match.value for path in watch.sensitive for match in path.find(obj))
    return [text for value in found for text in texts_in(value)]


def _versions(watch: Watch, environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        "rolecall": version("rolecall"),
        "ansible-core": version("ansible-core"),
        "collections": collections_near(),
        "content": digest_of_content(contents_of(watch)),
        "environment": decisive_settings(environment),
    }
