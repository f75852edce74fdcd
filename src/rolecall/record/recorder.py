"""The recorder of an operator: starts the record of each run, and keeps and writes it when the run has ended.

A record is never a reason for a run to fail: what goes wrong here is logged, and the run goes on.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from rolecall.blocking_work import in_thread
from rolecall.config.settings import Settings
from rolecall.config.watches import Watch
from rolecall.controller.work_queue import Cause
from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.logs import get_logger
from rolecall.record.access import AccessSet
from rolecall.record.content_digest import collections_near, digest_of_content
from rolecall.record.document import Surroundings, document_of
from rolecall.record.files import RecordFiles
from rolecall.record.masking import texts_in
from rolecall.record.memory import RecordMemory
from rolecall.record.run_record import Ending, RunRecord
from rolecall.record.watch_entry import entry_of
from rolecall.runs.content_watch import contents_of

logger = get_logger("record")

ROOM_BYTES: Final = 16 << 20
"""What the bodies of one run may take at least, if its record is only written to a file."""

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

    @classmethod
    def of_settings(cls, settings: Settings, client: Client) -> "Recorder | None":
        """Return the recorder that the settings ask for, None if runs are not recorded."""
        if not settings.record_memory_bytes and settings.record_directory is None:
            return None
        directory, keep = settings.record_directory, settings.record_keep_bytes
        files = None if directory is None else RecordFiles(directory, keep)
        return cls(client, RecordMemory(settings.record_memory_bytes), files)

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
            access = self.access_sets.setdefault(watch.gvk, AccessSet(watch.gvk, str(watch.content.path)))
            has_grown = access.add(record) or not access.is_written
            if self.files is not None:
                resources = await self._resources(record)
                await in_thread(partial(self._write, self.files, watch, record, resources))
                if has_grown:
                    plurals = await self._plurals(watch)
                    await in_thread(partial(self.files.write_access, watch.gvk, access.to_json(plurals)))
                    access.is_written = True
        except Exception as error:  # noqa: BLE001 - a record must not fail a run
            logger.warning("Could not write the record of a run", error=repr(error), job=record.ident)
        self.memory.add(record)

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the record of an object that is gone from memory."""
        self.memory.forget(gvk, key)

    def _write(self, files: RecordFiles, watch: Watch, record: RunRecord, resources: tuple[ApiResource, ...]) -> None:
        surroundings = Surroundings(
            watch=entry_of(watch),
            versions=_versions(watch),
            secrets=(*secret_texts(watch, self.environment), *marked_texts(watch, record.obj)),
            resources=resources,
        )
        path = files.write(record, document_of(record, surroundings))
        logger.debug("Record written", file=str(path), job=record.ident)

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
    named: list[tuple[str, Any]] = [*environment.items(), *watch.variables.items(), *finalizer.items()]
    texts = [value for name, value in named if _TELLING.search(name) and isinstance(value, str)]
    return [text for text in texts if len(text) >= _MIN_SECRET and not text.startswith("/")]


def marked_texts(watch: Watch, obj: RawObject) -> list[str]:
    """Return the texts of an object that the watch marks as sensitive."""
    found = (match.value for path in watch.sensitive for match in path.find(obj))
    return [text for value in found for text in texts_in(value)]


def _versions(watch: Watch) -> dict[str, Any]:
    return {
        "rolecall": version("rolecall"),
        "ansible-core": version("ansible-core"),
        "collections": collections_near(),
        "content": digest_of_content(contents_of(watch)),
    }
