"""What prune proposes to a person, as the inventory of a primary has it, and the command that confirms it."""

import shlex
from dataclasses import dataclass

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.prune.inventory import Inventory, InventoryObject, confirmation_of
from rolecall.runner.reconcile.context import CONFIRM_ANNOTATION


@dataclass(frozen=True, slots=True)
class Proposal:
    """The objects that a person may let the operator delete, and the digest that confirms exactly these."""

    objects: tuple[InventoryObject, ...]
    confirm: str

    def command(self, gvk: GVK, key: ObjectKey) -> str:
        """Return the command that confirms the deletions for a primary."""
        kind = f"{gvk.kind}.{gvk.group}".rstrip(".").lower()
        scope = ["-n", key.namespace] if key.namespace else []
        confirmation = f"{CONFIRM_ANNOTATION}={self.confirm}"
        return shlex.join(["kubectl", "annotate", "--overwrite", kind, key.name, *scope, confirmation])


def proposal_of(primary: RawObject) -> Proposal | None:
    """Return the deletions proposed for a primary; None if there are none, or if the inventory was edited.

    The digest is of all obsolete objects, or only of those that became so with a changed role.
    """
    inventory = Inventory.of(primary)
    obsolete = tuple(each for each in inventory.obsolete if each.seen)
    for objects in (obsolete, tuple(each for each in obsolete if each.asks)):
        if objects and inventory.confirm == confirmation_of((inventory.spec, inventory.role), objects):
            return Proposal(objects, inventory.confirm)
    return None
