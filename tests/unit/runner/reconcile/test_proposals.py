"""What prune proposes follows from the inventory of a primary, and the command confirms exactly that."""

from dataclasses import replace
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory, InventoryObject, confirmation_of
from rolecall.runner.prune.observations import ObjectId
from rolecall.runner.reconcile.proposals import proposal_of

SHOP = GVK("example.com", "v1", "Shop")


def entry(name: str, **fields: object) -> InventoryObject:
    """Return an entry that complete runs no longer name."""
    found = InventoryObject(ObjectId("", "services", "ns", name), "v1", "Service", f"uid-{name}", 1, seen="digest")
    return replace(found, **fields)  # type: ignore[arg-type] # fields of a test


def primary(*entries: InventoryObject, proposed: str, **fields: Any) -> RawObject:
    """Return a primary whose inventory proposes the entries with these names."""
    found = [each for each in entries if each.id.name in proposed]
    confirm = confirmation_of(("spec", "role"), found) if proposed else ""
    inventory = replace(Inventory("spec", "role", 0, entries, confirm=confirm), **fields)
    return {"metadata": {"name": "one", "annotations": {INVENTORY_ANNOTATION: inventory.to_text()}}}


@pytest.mark.parametrize(
    ("entries", "proposed"),
    [
        ((entry("a"), entry("b"), entry("c", since=0)), "ab"),
        ((entry("a"), entry("b", asks=True)), "b"),
        ((entry("a"), entry("b", seen="")), "a"),
    ],
    ids=["all obsolete ones", "only those after a changed role", "not those that couldn't be read"],
)
def test_proposal_has_the_objects_of_its_digest(entries: tuple[InventoryObject, ...], proposed: str) -> None:
    found = proposal_of(primary(*entries, proposed=proposed))
    assert found is not None
    assert [each.id.name for each in found.objects] == list(proposed)


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": {"name": "one"}},
        primary(entry("a"), proposed=""),
        primary(entry("a"), entry("b", seen=""), proposed="b"),
        primary(entry("a"), proposed="a", role="another"),
        primary(entry("a"), proposed="", confirm="x; rm"),
    ],
    ids=["no inventory", "deleted without asking", "unknown objects", "edited inputs", "an edited digest"],
)
def test_nothing_is_proposed_without_a_digest_that_fits(obj: RawObject) -> None:
    assert proposal_of(obj) is None


@pytest.mark.parametrize(
    ("gvk", "namespace", "command"),
    [
        (SHOP, "ns", "kubectl annotate --overwrite shop.example.com one -n ns rolecall.dev/confirm-prune="),
        (SHOP, "", "kubectl annotate --overwrite shop.example.com one rolecall.dev/confirm-prune="),
        (GVK("", "v1", "ConfigMap"), "ns", "kubectl annotate --overwrite configmap one -n ns rolecall.dev/"),
    ],
)
def test_command_annotates_the_primary_with_the_digest(gvk: GVK, namespace: str, command: str) -> None:
    found = proposal_of(primary(entry("a"), proposed="a"))
    assert found is not None
    shown = found.command(gvk, ObjectKey(namespace, "one"))
    assert shown.startswith(command)
    assert shown.endswith(f"={found.confirm}")
