"""The recorder of an operator: starts the record of each run, and keeps and writes it when the run has ended.

A record is never a reason for a run to fail: what goes wrong here is logged, and the run goes on.
"""

import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.ansible_defaults import decisive_settings
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.access import AccessSet
from rolecall.runner.record.content_digest import collections_near, digest_of_content
from rolecall.runner.record.document import Document, Surroundings, document_of, mask_of
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.history import RunHistory
from rolecall.runner.record.masking import Mask, texts_in
from rolecall.runner.record.memory import RecordMemory
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.runner.record.watch_entry import entry_of
from rolecall.runner.runs.content_watch import contents_of
from rolecall.system.blocking_work import in_thread
from rolecall.system.logs import get_logger

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
        directory, keep = settings.record_directory, settings.record_keep_bytes
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
        return await in_thread(lambda: mask_of(record, surroundings))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the record of an object that is gone from memory."""
        self.memory.forget(gvk, key)
        if self.history is not None:
            self.history.forget(gvk, key)

    async def document(self, watch: Watch, record: RunRecord) -> Document:
        """Return a record that is in memory as it may leave the operator, with its secrets masked."""
        snapshot = record.snapshot()
        resources, token = await self._resources(snapshot), await self._own_token()
        return await in_thread(partial(self._document, watch, snapshot, resources, token))

    async def _finish(self, watch: Watch, record: RunRecord) -> None:
        access = self.access_sets.setdefault(watch.gvk, AccessSet(watch.gvk, str(watch.content.path)))
        if self.files is None:
            access.add(record)
            return
        resources, token = await self._resources(record), await self._own_token()
        document = await in_thread(partial(self._write, self.files, watch, record, resources, token))
        if access.add(record, document.hides) or not access.is_written:
            plurals = await self._plurals(watch)
            await in_thread(partial(self.files.write_access, watch.gvk, access.to_json(plurals)))
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
