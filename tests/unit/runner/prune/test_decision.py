"""What a complete run makes of an inventory: the rules by which something may be deleted."""

from dataclasses import replace

from ansible_collections.rolecall.util.plugins.action import prune as action
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject
from rolecall.runner.prune.decision import NEVER_PRUNED, PRUNES_VARIABLE, CompleteRun, Decision, PruneOptions, decide
from rolecall.runner.prune.inventory import MAX_OBJECTS, Inventory, InventoryObject
from rolecall.runner.prune.observations import ObjectId, Observations

AFTER = 300.0
KINDS = {
    "configmaps": "ConfigMap",
    "services": "Service",
    "secrets": "Secret",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}


def item(name: str, resource: str = "services", since: int = 0) -> InventoryObject:
    return InventoryObject(ObjectId("", resource, "ns", name), "v1", KINDS[resource], f"uid-{name}", since)


def request_for(verb: str, resource: str, name: str = "", group: str = "") -> RequestInfo:
    return RequestInfo(verb, is_resource=True, group=group, version="v1", namespace="ns", resource=resource, name=name)


def run_of(
    names: str, inputs: str = "1", *, confirmed: bool = False, resource: str = "services", waits: str = ""
) -> CompleteRun:
    """Return a complete run that has read these objects, one per letter."""
    observations = Observations()
    for name in names:
        request = request_for("get", resource, name)
        seen = SeenObject(request.key, f"uid-{name}", is_own=True, waits_for=waits)
        observations.add(request, 200, (seen,))
    return CompleteRun(inputs, tuple(item(name, resource) for name in names), observations, confirmed)


def stable(inventory: Inventory, run: CompleteRun, now: float, options: PruneOptions | None = None) -> Decision:
    """Return the decision for the second of two equal runs."""
    return decide(inventory, run, run.digest, options or PruneOptions(), now=now)


def names(objects: tuple[InventoryObject, ...]) -> str:
    return "".join(each.id.name for each in objects)


INVENTORY = Inventory("1", tuple(item(name) for name in "abc"))


def test_first_run_of_a_set_changes_nothing_and_requests_another() -> None:
    decision = decide(INVENTORY, run_of("ab", "2"), None, PruneOptions(), now=10)
    assert (decision.inventory, decision.is_stable, decision.again_at) == (INVENTORY, False, 11)


def test_run_after_a_different_one_changes_nothing() -> None:
    decision = decide(INVENTORY, run_of("ab", "2"), run_of("a", "2").digest, PruneOptions(), now=10)
    assert (decision.inventory, decision.is_stable) == (INVENTORY, False)


def test_run_that_changes_objects_does_not_make_a_set_stable() -> None:
    """What a role makes because something changed isn't what it makes in each run."""
    changing = run_of("ab", "2")
    changing.observations.changes = True
    decision = decide(INVENTORY, changing, changing.digest, PruneOptions(), now=10)
    assert (decision.inventory, decision.is_stable) == (INVENTORY, False)


def test_change_during_the_run_of_a_known_set_prevents_no_deletion() -> None:
    marked = stable(INVENTORY, run_of("ab", "2"), 1000).inventory
    changing = run_of("ab", "2")
    changing.observations.changes = True
    assert names(stable(marked, changing, 1000 + AFTER).due) == "c"


def test_missing_object_with_other_inputs_becomes_obsolete() -> None:
    decision = stable(INVENTORY, run_of("ab", "2"), 1000)
    assert names(decision.newly_obsolete) == "c"
    assert (decision.due, decision.again_at) == ((), 1000 + AFTER)
    assert decision.inventory.obsolete == (item("c", since=1000),)


def test_new_version_of_the_role_makes_nothing_obsolete() -> None:
    """A mistake in a role must not delete objects of all primaries; nobody has edited these."""
    for inputs in ("1.b", "2.b"):  # with an edit at the same time, nobody knows which of the two is the reason
        decision = stable(replace(INVENTORY, inputs="1.a"), run_of("ab", inputs), 1000)
        assert decision.inventory == Inventory(inputs, (item("a"), item("b")))
        assert not decision.newly_obsolete


def test_new_version_of_the_role_restarts_the_time_of_what_is_obsolete() -> None:
    edited = stable(replace(INVENTORY, inputs="1.a"), run_of("ab", "2.a"), 1000).inventory
    decision = stable(edited, run_of("ab", "2.b"), 1000 + AFTER)
    assert (decision.due, decision.inventory.obsolete) == ((), (item("c", since=1300),))


def test_missing_object_with_equal_inputs_leaves_the_inventory() -> None:
    decision = stable(INVENTORY, run_of("ab"), 1000)
    assert decision.inventory == Inventory("1", (item("a"), item("b")))
    assert not decision.due


def test_obsolete_object_is_due_after_its_time() -> None:
    marked = stable(INVENTORY, run_of("ab", "2"), 1000).inventory
    assert not stable(marked, run_of("ab", "2"), 1000 + AFTER - 1).due
    assert names(stable(marked, run_of("ab", "2"), 1000 + AFTER).due) == "c"


def test_config_map_is_due_after_an_hour() -> None:
    inventory = Inventory("1", (item("a"), item("c", "configmaps")))
    marked = stable(inventory, run_of("a", "2"), 1000).inventory
    assert not stable(marked, run_of("a", "2"), 1000 + 3599).due
    assert names(stable(marked, run_of("a", "2"), 1000 + 3600).due) == "c"


def test_object_that_is_named_again_is_no_longer_obsolete() -> None:
    marked = stable(INVENTORY, run_of("ab", "2"), 1000).inventory
    assert stable(marked, run_of("abc", "1"), 5000).inventory == INVENTORY


def test_other_inputs_start_the_time_anew() -> None:
    marked = stable(INVENTORY, run_of("ab", "2"), 1000).inventory
    decision = stable(marked, run_of("ab", "3"), 1000 + AFTER)
    assert not decision.due
    assert decision.inventory.obsolete == (item("c", since=1300),)


def test_nothing_is_due_while_an_object_waits() -> None:
    marked = stable(INVENTORY, run_of("ab", "2"), 1000).inventory
    decision = stable(marked, run_of("ab", "2", waits="it is Pending"), 2000)
    assert (decision.due, decision.again_at) == ((), 2060)
    assert "it is Pending" in decision.remark


def test_report_mode_has_nothing_due() -> None:
    options = PruneOptions(deletes=False)
    marked = stable(INVENTORY, run_of("ab", "2"), 1000, options).inventory
    decision = stable(marked, run_of("ab", "2"), 9000, options)
    assert (decision.due, decision.again_at, names(decision.inventory.obsolete)) == ((), None, "c")


def test_kinds_are_due_only_if_they_are_pruned() -> None:
    inventory = Inventory("1", (item("a"), item("s", "secrets"), item("p", "persistentvolumeclaims")))
    listed = PruneOptions(kinds=frozenset({("", "Secret"), ("", "PersistentVolumeClaim")}))
    assert not stable(inventory, run_of("a", "2"), 1000).newly_obsolete
    assert names(stable(inventory, run_of("a", "2"), 1000, listed).newly_obsolete) == "s"


def test_empty_set_needs_a_person() -> None:
    marked = stable(INVENTORY, run_of("", "2"), 1000).inventory
    assert stable(marked, run_of("", "2"), 2000).needs_confirmation
    assert names(stable(marked, run_of("", "2", confirmed=True), 2000).due) == "abc"


def test_most_of_the_inventory_needs_a_person() -> None:
    inventory = Inventory("1", tuple(item(name) for name in "abcdefg"))
    few, many = run_of("abcd", "2"), run_of("abc", "2")
    assert not stable(stable(inventory, few, 1000).inventory, few, 2000).needs_confirmation
    assert stable(stable(inventory, many, 1000).inventory, many, 2000).needs_confirmation


def test_more_objects_than_an_inventory_has_are_not_followed() -> None:
    own = tuple(item(str(number)) for number in range(MAX_OBJECTS + 1))
    decision = stable(INVENTORY, CompleteRun("1", own), 1000)
    assert decision.inventory == Inventory()
    assert str(MAX_OBJECTS) in decision.remark


def test_object_that_a_list_or_a_whole_collection_names_stays() -> None:
    for observed in (("list", None), ("watch", None), ("deletecollection", ())):
        run = run_of("ab", "2")
        run.observations.add(request_for(observed[0], "services"), 200, observed[1])
        assert not stable(INVENTORY, run, 1000).newly_obsolete


def test_object_with_another_resource_but_the_same_uid_is_named() -> None:
    run = run_of("ab", "2")
    request = request_for("get", "services", "x", group="other")
    run.observations.add(request, 200, (SeenObject(request.key, "uid-c", is_own=True),))
    assert not stable(INVENTORY, run, 1000).newly_obsolete


RUNS = st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.sampled_from("12")), max_size=12)


@given(RUNS)
def test_history_deletes_only_after_three_runs_that_do_not_name_it(history: list[tuple[set[str], str]]) -> None:
    """For any history with ten minutes between runs: the last three runs agree, and an earlier one had other inputs."""
    inventory, previous, runs = Inventory(), None, []
    for number, (found, inputs) in enumerate(history):
        run = run_of("".join(sorted(found)), inputs)
        runs.append((found, inputs))
        decision = decide(inventory, run, previous, PruneOptions(), now=600 * (number + 1))
        for each in decision.due:
            assert number >= 2
            assert {(frozenset(names_), with_) for names_, with_ in runs[-3:]} == {(frozenset(found), inputs)}
            assert any(each.id.name in names_ and with_ != inputs for names_, with_ in runs)
            inventory = inventory.without(each.id)
        inventory = decision.inventory
        for each in decision.due:
            inventory = inventory.without(each.id)
        assert {each.id.name for each in decision.due}.isdisjoint(found)
        previous = run.digest


def test_task_and_operator_agree_on_kinds_that_are_never_pruned_and_on_their_variable() -> None:
    """The task can't import the operator, which may not be installed where a playbook runs."""
    assert action.NEVER == NEVER_PRUNED
    assert action.OPERATOR_VARIABLE == PRUNES_VARIABLE
