"""The recorder of an operator: starts the record of each run, and stores and writes it when the run has ended.

A record never fails a run: errors are logged, and the run continues.
"""

import json
import os
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.ansible_config import decisive_settings
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.access import AccessSet
from rolecall.runner.record.document import Document, document_of, mask_of
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.history import RunHistory
from rolecall.runner.record.run_record import Ending, RecordMemory, RunRecord
from rolecall.runner.runs.content import contents_of, digest_of_content
from rolecall.runner.runs.events import cut
from rolecall.runner.secrets.mask import Mask
from rolecall.runner.secrets.values import marked_texts, secret_texts
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from rolecall.system.logs import get_logger

logger = get_logger("record")

ROOM_BYTES: Final = 16 << 20
"""The minimum space for the bodies of one run, even if its record is only written to a file."""

_MESSAGE_BYTES: Final = 600
"""The maximum length of the message of a failure in a list."""

_COLLECTIONS: Final = ("kubernetes.core", "operator_sdk.util", "community.okd")


@dataclass(slots=True)
class Recorder:
    """Records the runs of all kinds."""

    client: Client
    memory: RecordMemory
    files: RecordFiles | None = None
    room_bytes: int = ROOM_BYTES
    """The space for the bodies of one run; 0 if no part of the operator reads them: compressing them takes time."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    access_sets: dict[GVK, AccessSet] = field(default_factory=dict)
    has_dashboard: bool = False
    """Whether records stay in memory: only the dashboard shows those."""
    history: RunHistory = field(default_factory=RunHistory)
    """The lines about the last runs, for the dashboard."""
    clock: Clock = SYSTEM_CLOCK
    mark_unsafe: bool = True
    """Whether runs mark strings as unsafe if their watch has no ``markUnsafe``."""
    drops_unknown_options: bool = True
    """Whether runs leave out nested fields that their role doesn't declare."""

    @classmethod
    def of_settings(
        cls, settings: Settings, client: Client, *, has_traces: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> "Recorder | None":
        """Return the recorder for the settings, or None if runs aren't recorded.

        Without a directory, dashboard, and traces, records only explain hidden failures, and have no bodies.
        """
        directory, budget = settings.record_directory, settings.record_memory_bytes
        if not budget and directory is None:
            return None
        files = None if directory is None else RecordFiles(directory, settings.record_directory_max_bytes)
        room = max(budget, ROOM_BYTES) if files or settings.has_ui or has_traces else 0
        memory, ui = RecordMemory(budget), settings.has_ui
        return cls(
            client,
            memory,
            files,
            room,
            has_dashboard=ui,
            clock=clock,
            mark_unsafe=settings.mark_unsafe,
            drops_unknown_options=settings.drops_unknown_options,
        )

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Start the record of a run."""
        return RunRecord(
            gvk=watch.gvk,
            obj=obj,
            ident=ident,
            bodies=self.memory.bodies,
            room_bytes=self.room_bytes,
            causes=tuple(cause.text for cause in causes),
            started=datetime.fromtimestamp(self.clock.now(), UTC),
        )

    async def finish(self, watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Store the record of a run that has ended."""
        record.ending = ending
        try:
            if self.files is not None:
                await self._write(self.files, watch, record)
        except Exception as error:  # noqa: BLE001 - a record must not fail a run
            text = str(error) if isinstance(error, OSError) else without_text(error)
            logger.warning("Failed to write the record of a run", error=text, job=record.ident)
        if self.has_dashboard:
            self.history.add(record, await self._failure(watch, record))
            self.memory.add(record)
        else:
            record.drop()

    async def document(self, watch: Watch, record: RunRecord) -> Document:
        """Return a record as it may leave the operator, with its secret values masked."""
        snapshot = replace(record)  # it stays whole when the record is dropped in the meantime
        resources, secrets = await self._resources(snapshot), await self._secrets(watch, snapshot)

        def make() -> Document:
            versions = _versions(watch, self.environment)
            entry = entry_of(watch, mark_unsafe=self.mark_unsafe, drops_unknown_options=self.drops_unknown_options)
            return document_of(snapshot, watch=entry, versions=versions, secrets=secrets, resources=resources)

        return await run_in_thread(make)

    async def mask_of(self, watch: Watch, record: RunRecord) -> Mask:
        """Return the mask of the secret values in a run, before its record is finished."""
        secrets = await self._secrets(watch, record)
        return await run_in_thread(lambda: mask_of(record, secrets))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the records of a deleted object from memory."""
        self.memory.forget(gvk, key)
        self.history.forget(gvk, key)

    async def _failure(self, watch: Watch, record: RunRecord) -> str:
        """Return the start of the first reason why a run failed, with secret values masked; empty if there is none."""
        failures = record.ending.run.failures
        if not failures:
            return ""
        try:
            mask = await self.mask_of(watch, record)
            text = str(mask.apply_to(mask.without_cut_value(str(failures[0]))))
            return cut(text, _MESSAGE_BYTES)  # after masking, which doesn't find a part of a value
        except Exception as error:  # noqa: BLE001 - a record must not fail a run
            return f"not shown: {without_text(error)}"

    async def _write(self, files: RecordFiles, watch: Watch, record: RunRecord) -> None:
        """Write the record, and the access set of its kind if the run has added to it."""
        access = self.access_sets.setdefault(watch.gvk, AccessSet(watch.gvk, str(watch.content.path)))
        document = await self.document(watch, record)
        path = await run_in_thread(partial(files.write, record, document))
        logger.debug("Record written", file=str(path), job=record.ident)
        if access.add(record, document.hides) or not access.is_written:
            plurals = {}
            for gvk in dict.fromkeys((watch.gvk, *(trigger.gvk for trigger in watch.triggers))):
                with suppress(KubeError):  # the API server doesn't serve it
                    plurals[gvk] = (await self.client.resource(gvk)).plural
            await run_in_thread(partial(files.write_access, watch.gvk, access.to_json(plurals)))
            access.is_written = True

    async def _secrets(self, watch: Watch, record: RunRecord) -> list[str]:
        """Return the secret values that requests don't show.

        They include the operator's token for the API server: a role can read the file that contains it.
        """
        token = (await self.client.auth_headers()).get("authorization", "").partition(" ")[2]
        own = [token] if token else []
        return [*secret_texts(watch, self.environment), *marked_texts(watch, record.obj), *own]

    async def _resources(self, record: RunRecord) -> list[ApiResource]:
        """Return the kind of the primary and those of the run's requests, if the API server serves them."""
        found = []
        with suppress(KubeError):
            found.append(await self.client.resource(record.gvk))
        infos = (kept.exchange.info for kept in record.exchanges)
        for group, name, plural in sorted({(each.group, each.version, each.resource) for each in infos}):
            with suppress(KubeError):
                resource = await self.client.resource_for_path(group, name, plural) if plural else None
                found += [resource] if resource and resource not in found else []
        return found


def without_text(error: Exception) -> str:
    """Return the type and the place of an error, whose text may contain a secret."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {place.filename}:{place.lineno}"


def entry_of(watch: Watch, *, mark_unsafe: bool, drops_unknown_options: bool) -> dict[str, Any]:
    """Return the keys of a watch that affect a run, by their names in ``watches.yaml``.

    ``mark_unsafe`` is the value for a watch without ``markUnsafe``. ``dropUnknownOptions`` is a flag of the operator.
    """
    finalizer = watch.finalizer
    return {
        "group": watch.gvk.group,
        "version": watch.gvk.version,
        "kind": watch.gvk.kind,
        **_content(watch.content),
        "vars": dict(watch.variables),
        "manageStatus": watch.manage_status,
        "ready": {name: path.text for name, path in watch.ready.items()},
        "snakeCaseParameters": watch.snake_case_parameters,
        "markUnsafe": watch.marks_unsafe(default=mark_unsafe),
        "dropUnknownOptions": drops_unknown_options,
        "allowVariables": sorted(watch.allow_variables),
        "finalizer": finalizer
        and {"name": finalizer.name, **_content(finalizer.content), "vars": dict(finalizer.variables)},
        "status": {name: path.text for name, path in watch.status.items()},
    }


def _content(content: Content | None) -> dict[str, str]:
    return {"role" if isinstance(content, RoleContent) else "playbook": str(content.path)} if content else {}


def _versions(watch: Watch, environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        "rolecall": version("rolecall"),
        "ansible-core": version("ansible-core"),
        "collections": _collections(),
        "content": digest_of_content(contents_of(watch)),
        "environment": decisive_settings(environment),
    }


@lru_cache(maxsize=1)
def _collections() -> dict[str, str]:
    """Return the versions of the collections with modules for Kubernetes that are on Python's path."""
    found = {}
    package = find_spec("ansible_collections")
    for root in (package.submodule_search_locations or ()) if package else ():
        for name in _COLLECTIONS:
            manifest = Path(root, *name.split("."), "MANIFEST.json")
            if os.path.isfile(manifest):  # noqa: PTH113 - pathlib raises PermissionError
                found[name] = str(json.loads(manifest.read_text())["collection_info"]["version"])
    return found
