"""What a run makes of an inventory: the rules by which something may be deleted."""

from dataclasses import replace

from ansible_collections.rolecall.util.plugins.action import prune as action
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject
from rolecall.runner.prune.decision import (
    MAX_KNOWN_SECONDS,
    PRUNES_VARIABLE,
    CompleteRun,
    Decision,
    PruneOptions,
    decide,
    judge,
)
from rolecall.runner.prune.inventory import MAX_BYTES, MAX_OBJECTS, PENDING, Inputs, Inventory, InventoryObject
from rolecall.runner.prune.observations import ObjectId, Observations

AFTER = 300.0
FOREVER = 1e9
KINDS = {"configmaps": "ConfigMap", "services": "Service"}
DELETE = PruneOptions(deletes=True)
S1, S2, S3 = (Inputs(spec, "role") for spec in ("s1", "s2", "s3"))
RELEASED = Inputs("s1", "released")


def item(name: str, resource: str = "services", since: int = 0, *, asks: bool = False) -> InventoryObject:
    seen = "digest" if since > 0 else ""
    return InventoryObject(
        ObjectId("", resource, "ns", name), "v1", KINDS[resource], f"uid-{name}", since, asks=asks, seen=seen
    )


def inventory_of(names: str, inputs: Inputs = S1) -> Inventory:
    """Return an inventory of these objects, one for each letter, as runs with these inputs have named them."""
    return Inventory(inputs.spec, inputs.role, objects=tuple(item(name) for name in names))


def request_for(verb: str, resource: str, name: str = "", group: str = "") -> RequestInfo:
    return RequestInfo(verb, is_resource=True, group=group, version="v1", namespace="ns", resource=resource, name=name)


def run_of(
    names: str, inputs: Inputs = S1, *, confirmed: str = "", resource: str = "services", waits: str = ""
) -> CompleteRun:
    """Return a complete run that has read these objects, one for each letter."""
    observations = Observations()
    for name in names:
        request = request_for("get", resource, name)
        seen = SeenObject(request.key, f"uid-{name}", is_own=True, waits_for=waits)
        observations.add(request, 200, (seen,))
    own = tuple(item(name, resource) for name in names)
    return CompleteRun(inputs, own, observations, confirmed=confirmed)


def judged(inventory: Inventory, run: CompleteRun, now: float, *, is_complete: bool = True) -> Inventory:
    """Return the inventory after a run, in which every obsolete object was examined."""
    found = judge(
        inventory,
        run.inputs,
        lambda each: run.observations.names(each.id, each.uid),
        now,
        is_complete=is_complete,
    )
    objects = tuple(replace(each, seen="digest") if each.is_obsolete else each for each in found.objects)
    return replace(found, objects=objects)


def stable(
    inventory: Inventory,
    run: CompleteRun,
    now: float,
    options: PruneOptions = DELETE,
    known: float = FOREVER,
) -> Decision:
    """Return the decision for the third of three equal runs."""
    inventory = replace(judged(inventory, run, now), stable=run.digest)
    return decide(inventory, run, run.digest, options, now=now, known_seconds=lambda _each: known)


def names(objects: tuple[InventoryObject, ...]) -> str:
    return "".join(each.id.name for each in objects)


ABC = inventory_of("abc")
EDITED = judged(ABC, run_of("ab", S2), 1000)
"""After an edit and a complete run that doesn't name ``c``."""


def test_first_complete_run_after_an_edit_marks_what_it_does_not_name_and_requests_another_run() -> None:
    run = run_of("ab", S2)
    decision = decide(EDITED, run, None, DELETE, now=1000, known_seconds=lambda _: 0)
    assert (decision.is_stable, decision.again_at, decision.due) == (False, 1001, ())
    assert decision.inventory.obsolete == (item("c", since=1000),)
    assert names(decision.inventory.objects) == "abc"


def test_set_that_is_not_stable_adds_and_deletes_nothing() -> None:
    run = run_of("abd", S2)
    changing = replace(run, observations=run.observations)
    changing.observations.changes = True
    for previous, each in ((None, run), (run_of("a", S2).digest, run), (changing.digest, changing)):
        decision = decide(EDITED, each, previous, DELETE, now=9000, known_seconds=lambda _: FOREVER)
        assert (decision.is_stable, decision.due, names(decision.inventory.objects)) == (False, (), "abc")


def test_deletion_takes_three_runs_however_short_the_time_of_the_task_is() -> None:
    """So an Event tells of it before."""
    run, options = run_of("ab", S2), PruneOptions(0.0, deletes=True)
    second = decide(EDITED, run, run.digest, options, now=1001, known_seconds=lambda _: FOREVER)
    assert (second.is_stable, second.due, second.again_at) == (True, (), 1002)
    third = decide(second.inventory, run, run.digest, options, now=1002, known_seconds=lambda _: FOREVER)
    assert names(third.due) == "c"


def test_change_during_the_run_of_a_known_set_prevents_no_deletion() -> None:
    known = stable(EDITED, run_of("ab", S2), 1001).inventory
    changing = run_of("ab", S2)
    changing.observations.changes = True
    decision = decide(known, changing, None, DELETE, now=1000 + AFTER, known_seconds=lambda _: FOREVER)
    assert names(decision.due) == "c"


def test_obsolete_object_is_due_after_its_time_by_both_clocks() -> None:
    """The wall clock may jump, and the time in the inventory may be forged."""
    run = run_of("ab", S2)
    assert stable(EDITED, run, 1000 + AFTER - 1).again_at == 1000 + AFTER
    assert not stable(EDITED, run, 1000 + AFTER - 1).due
    assert names(stable(EDITED, run, 1000 + AFTER).due) == "c"
    decision = stable(EDITED, run, 1e8, known=AFTER - 1)
    assert (decision.due, decision.again_at) == ((), 1e8 + 1)
    assert names(stable(EDITED, run, 1e8, PruneOptions(10 * MAX_KNOWN_SECONDS, deletes=True), MAX_KNOWN_SECONDS).due)


def test_config_map_is_due_after_an_hour() -> None:
    inventory = Inventory("s1", "role", objects=(item("a"), item("c", "configmaps")))
    marked = judged(inventory, run_of("a", S2), 1000)
    assert not stable(marked, run_of("a", S2), 1000 + 3599).due
    assert names(stable(marked, run_of("a", S2), 1000 + 3600).due) == "c"


def test_any_run_with_the_present_inputs_that_names_an_object_keeps_it_until_they_change() -> None:
    """Also one that failed: what it has named is needed with these inputs."""
    named = judged(EDITED, run_of("c", S2), 1010, is_complete=False)
    decision = stable(named, run_of("ab", S2), 9000)
    assert (decision.due, decision.proposed, names(decision.inventory.objects)) == ((), (), "ab")


def test_failed_run_with_other_inputs_only_shows_what_is_needed() -> None:
    """The others are judged by the first complete run; who must confirm depends on all changes until then."""
    failed = judged(ABC, run_of("c", S2), 1000, is_complete=False)
    assert [each.since for each in failed.objects] == [PENDING, PENDING, 0]
    complete = judged(failed, run_of("ab", S2), 1010)
    assert [(names((each,)), each.since) for each in complete.objects] == [("a", 0), ("b", 0), ("c", 0)]
    released = judged(judged(ABC, run_of("a", RELEASED), 1000, is_complete=False), run_of("ab", RELEASED), 1010)
    assert [each.asks for each in released.obsolete] == [True]


def test_failed_run_that_names_nothing_of_the_inventory_changes_nothing() -> None:
    assert judged(ABC, run_of("d", S2), 1000, is_complete=False) == ABC


def test_other_inputs_start_the_time_anew() -> None:
    assert judged(EDITED, run_of("ab", S3), 1300).obsolete == (item("c", since=1300),)


def test_missing_object_with_equal_inputs_leaves_the_inventory() -> None:
    decision = stable(ABC, run_of("ab"), 1000)
    assert (names(decision.inventory.objects), decision.due, decision.proposed) == ("ab", (), ())


def test_new_version_of_the_role_only_proposes() -> None:
    """A mistake in a role must not delete objects of all primaries; nobody has edited these."""
    for inputs in (RELEASED, Inputs("s2", "released")):  # with an edit at once, nobody knows which is the reason
        marked = judged(ABC, run_of("ab", inputs), 1000)
        decision = stable(marked, run_of("ab", inputs), 9000)
        assert (decision.due, names(decision.proposed), decision.again_at) == ((), "c", None)
        assert decision.inventory.confirm


def test_tasks_of_a_file_that_nobody_follows_only_propose() -> None:
    """Another version of it, for example of a role in a collection, may name less, and the inputs are the same."""
    run = run_of("ab", S2)
    assert names(stable(EDITED, run, 9000).due) == "c"
    found = stable(EDITED, replace(run, unknown_file="/collections/x/tasks/main.yml"), 9000)
    assert (found.due, names(found.proposed)) == ((), "c")
    assert "/collections/x/tasks/main.yml" in found.why_asking


def test_spec_with_another_default_of_its_crd_only_proposes() -> None:
    """A changed default reaches all primaries at once, and leaves their generations."""
    noted, run = replace(ABC, generation=3), run_of("ab", S2)
    for generation, asks in ((3, True), (4, False)):
        found = judged(noted, replace(run, inputs=S2._replace(generation=generation)), 1000)
        assert [each.asks for each in found.obsolete] == [asks]
    undone = judged(noted, replace(run, inputs=S1._replace(generation=5)), 900)  # two edits that nothing is left of
    found = judged(undone, replace(run, inputs=S2._replace(generation=5)), 1000)
    assert [each.asks for each in found.obsolete] == [True]


def test_edit_after_a_release_does_not_permit_what_the_release_made_obsolete() -> None:
    released = judged(ABC, run_of("ab", RELEASED), 1000)
    run = run_of("a", Inputs("s2", "released"))
    decision = stable(judged(released, run, 2000), run, 9000)
    assert (names(decision.due), names(decision.proposed)) == ("b", "c")


def test_report_mode_proposes_at_once_and_deletes_exactly_what_a_person_confirms() -> None:
    report = PruneOptions()
    decision = stable(EDITED, run_of("ab", S2), 1001, report)
    assert (decision.due, names(decision.proposed), decision.why_asking) == ((), "c", "the mode is report")
    confirm = decision.inventory.confirm
    assert names(stable(EDITED, run_of("ab", S2, confirmed=confirm), 1002, report).due) == "c"
    assert not stable(EDITED, run_of("ab", S2, confirmed="another"), 1002, report).due
    edited_again = run_of("ab", S3, confirmed=confirm)
    assert not stable(EDITED, edited_again, 9000, report).due
    fewer = judged(judged(ABC, run_of("ab", S2), 1000), run_of("a", S3), 2000)
    assert not stable(fewer, run_of("a", S3, confirmed=confirm), 9000, report).due


def test_empty_set_and_most_of_the_inventory_need_a_person() -> None:
    inventory = inventory_of("abcdefg")
    few, many, none = run_of("abcd", S2), run_of("abc", S2), run_of("", S2)
    assert not stable(judged(inventory, few, 1000), few, 2000).proposed
    assert names(stable(judged(inventory, many, 1000), many, 2000).proposed) == "defg"
    assert names(stable(judged(ABC, none, 1000), none, 2000).proposed) == "abc"


def test_run_that_names_only_dependents_of_other_kinds_names_something() -> None:
    run = run_of("", S2)
    request = request_for("get", "secrets", "s")
    run.observations.add(request, 200, (SeenObject(request.key, "uid-s", is_own=False, is_dependent=True),))
    assert names(stable(judged(inventory_of("a"), run, 1000), run, 2000).due) == "a"


def test_object_that_was_not_examined_is_neither_due_nor_proposed() -> None:
    unread = replace(EDITED, objects=tuple(replace(each, seen="") for each in EDITED.objects))
    run = run_of("ab", S2)
    decision = decide(unread, run, run.digest, DELETE, now=9000, known_seconds=lambda _: FOREVER)
    assert (decision.due, decision.proposed) == ((), ())


def test_nothing_is_deleted_while_an_object_waits_that_did_not_when_nothing_was_obsolete() -> None:
    calm = stable(ABC, run_of("abc", waits="it is Pending"), 900).inventory
    marked = judged(calm, run_of("ab", S2), 1000)
    assert names(stable(marked, run_of("ab", S2, waits="it is Pending"), 2000).due) == "c"
    for waits in ("another reason", "it is Pending"):
        inventory = marked if waits == "another reason" else EDITED
        decision = stable(inventory, run_of("ab", S2, waits=waits), 2000)
        assert (decision.due, decision.again_at) == ((), 2060)
        assert waits in decision.remark
    confirm = stable(EDITED, run_of("ab", S2), 1001, PruneOptions()).inventory.confirm
    waiting = run_of("ab", S2, confirmed=confirm, waits="it is Pending")
    assert not stable(EDITED, waiting, 2000, PruneOptions()).due


def test_what_waits_while_something_is_obsolete_is_not_noted() -> None:
    decision = stable(EDITED, run_of("ab", S2, waits="it is Pending"), 1001)
    assert not decision.inventory.waiting


def test_more_objects_or_longer_names_than_an_inventory_has_are_not_followed() -> None:
    many = tuple(item(str(number)) for number in range(MAX_OBJECTS + 1))
    long = tuple(item(f"{number}{'x' * 250}") for number in range(MAX_BYTES // 500))
    for own in (many, long):
        decision = stable(ABC, CompleteRun(S1, own), 1000)
        assert decision.inventory == Inventory()
        assert str(MAX_OBJECTS) in decision.remark


def test_object_that_a_list_or_a_whole_collection_names_stays() -> None:
    for verb, seen in (("list", None), ("watch", None), ("deletecollection", ())):
        run = run_of("ab", S2)
        run.observations.add(request_for(verb, "services"), 200, seen)
        assert not judged(ABC, run, 1000).obsolete


def test_object_with_another_resource_but_the_same_uid_is_named() -> None:
    run = run_of("ab", S2)
    request = request_for("get", "services", "x", group="other")
    run.observations.add(request, 200, (SeenObject(request.key, "uid-c", is_own=True),))
    assert not judged(ABC, run, 1000).obsolete


RUNS = st.lists(
    st.tuples(st.sets(st.sampled_from("abcdef")), st.sampled_from([S1, S2, RELEASED]), st.booleans()), max_size=14
)


@given(RUNS)
def test_history_deletes_only_what_an_edit_made_obsolete_and_no_run_with_its_inputs_names(
    history: list[tuple[set[str], Inputs, bool]],
) -> None:
    """For any history with ten minutes between runs, some of which fail."""
    inventory, previous = Inventory(), None
    for number, (found, inputs, succeeds) in enumerate(history):
        run, now = run_of("".join(sorted(found)), inputs), 600.0 * (number + 1)
        inventory = judged(inventory, run, now, is_complete=succeeds)
        if not succeeds:
            previous = None
            continue
        decision = decide(inventory, run, previous, DELETE, now=now, known_seconds=lambda _: FOREVER)
        inventory, previous = decision.inventory, run.digest
        start = next(at for at in range(number + 1) if all(each[1] == inputs for each in history[at : number + 1]))
        for each in decision.due:
            assert all(each.id.name not in names_ for names_, _, _ in history[start : number + 1])
            assert history[start - 1][1].role == inputs.role
            assert number - start >= 1
            inventory = inventory.without(each.id)


def test_task_and_operator_agree_on_their_variable() -> None:
    """The task can't import the operator, which may not be installed where a playbook runs."""
    assert action.OPERATOR_VARIABLE == PRUNES_VARIABLE
