"""Takes the marks from objects that other roles use, so that prune doesn't delete them, and completes others.

A mark, once lost, never comes back, so such an object stays, whatever any inventory says. See ``proxy/made_for.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rolecall.kube.errors import KubeError, NotFoundError, UnknownKindError
from rolecall.kube.metadata import owner_references_of, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION, mark_for, marked_primary
from rolecall.runner.prune.inventory import InventoryObject
from rolecall.runner.prune.observations import ObjectId, Other
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.status_writer import Primaries
from rolecall.system.logs import get_logger

logger = get_logger("prune")


@dataclass(frozen=True, slots=True)
class Marks:
    """Writes marks after the runs of one kind."""

    primaries: Primaries
    shared: set[tuple[ObjectId, str]]
    """The objects that runs of other primaries have requested by name, with the uid of the primary in their mark.

    Each is in it from the request until its mark was removed.
    """

    pruning: set[GVK]
    """The kinds of this operator whose roles may prune."""

    async def unmark_shared(self, context: ReconcileContext) -> None:
        """Remove the marks of the objects of other primaries that the run has requested by name.

        A response that doesn't show the mark, such as a Scale, takes a read. A mark that can't be removed is tried
        again after the next run that requests the object.
        """
        run, uid = context.observations, uid_of(context.obj)
        for found, version in run.unseen.items() if self.pruning else ():
            live = await self._read(found, version)
            primary_uid = marked_primary(live, found.group)
            if primary_uid not in ("", uid) and uid_of(live) != uid:
                run.found_other(found, Other(version, uid_of(live), primary_uid))
        for found, other in run.others.items():
            if not self.primaries.may_write():
                return
            name = f"{found.resource} {found.key}"
            try:
                await self._write(context, await self.kind_of(found, other.version), found, {"uid": other.uid}, None)
                logger.info("Keeping an object that was made for another object", object=name)
            except NotFoundError:
                pass
            except KubeError as error:
                logger.warning("Failed to unmark an object of another role", object=name, reason=str(error))
                continue
            self.shared.discard((found, other.primary_uid))

    async def complete(self, context: ReconcileContext, own: InventoryObject) -> None:
        """Add the object's uid to the mark of an object of this primary, if it still has it. Raise KubeError."""
        gvk, owner_uid = GVK(own.id.group, own.version, own.kind), uid_of(context.obj)
        live = await self.primaries.client.get(gvk, own.id.key)
        is_own = uid_of(live) == own.uid and marked_primary(live, gvk.group) == owner_uid
        if is_own and self.primaries.may_write():
            known = {"uid": own.uid, "resourceVersion": resource_version_of(live)}
            mark = mark_for(owner_uid, gvk.group, gvk.kind, own.id.key, own.uid)
            await self._write(context, gvk, own.id, known, mark)

    async def kind_of(self, found: ObjectId, version: str) -> GVK:
        """Return the kind of an object. Raise UnknownKindError if it isn't served."""
        resource = await self.primaries.client.resource_for_path(found.group, version, found.resource)
        if resource is None:
            raise UnknownKindError(GVK(found.group, version, found.resource))
        return resource.gvk

    async def _write(
        self, context: ReconcileContext, gvk: GVK, found: ObjectId, known: Mapping[str, str], mark: str | None
    ) -> None:
        written = await self.primaries.annotate(context.key, gvk, found.key, known, {MADE_FOR_ANNOTATION: mark})
        for reference in owner_references_of(written):  # a mark is nothing that its primary must react to
            primary = GVK.of(reference.api_version, reference.kind), ObjectKey(found.namespace, reference.name)
            self.primaries.own_writes.record_write(primary, written)

    async def _read(self, found: ObjectId, version: str) -> RawObject:
        try:
            return await self.primaries.client.get(await self.kind_of(found, version), found.key)
        except (KubeError, OSError) as error:
            logger.debug("Failed to read what a run has named", object=str(found.key), reason=str(error))
            return {}
