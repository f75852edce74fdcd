"""Two runs are compared by what their writes mean: other writes are found, and what every run gets anew is none."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import RawObject
from rolecall.runner.proxy import Exchange
from rolecall.workbench.replay.comparison import Compared, compare
from rolecall.workbench.replay.equality import Clocks
from rolecall.workbench.replay.recorded_cluster import parse_time
from rolecall.workbench.replay.results import Change
from rolecall.workbench.replay.writes import RunLines, writes_of
from tests.unit.workbench.replay.stories import MAPS, SECRETS, ask, by, config_map, lines_of, record_of, run_of

LATER = "2027-03-01T10:00:00"
STARTED = "2027-01-15T08:00:00"


def body(value: object, name: str = "a") -> RawObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}}


def post(value: object, name: str = "a", task: str = "one", uid: str = "") -> Exchange:
    answer = config_map(str(value), name, uid=uid or f"uid-of-{name}")
    return by(task, ask("POST", MAPS, body(value, name), answer, 201))


def compared(tmp_path: Path, before: list[Exchange], after: list[Exchange], **more: Any) -> Compared:
    """Compare a record with a run that began later."""
    record = lines_of(record_of(tmp_path, *before, **more))
    run = at(RunLines.of_run(run_of(*after)), LATER)
    return compare(writes_of(at(record, STARTED)), writes_of(run), has_ended_early=False)


def at(lines: RunLines, started: str) -> RunLines:
    begin = parse_time(f"{started}+00:00")
    assert begin is not None
    return RunLines(lines.obj, lines.exchanges, lines.tasks, begin, lines.seconds, lines.placeholders)


def changes(found: Compared) -> list[tuple[Change, str]]:
    return [(each.change, each.task.name) for each in found.differences]


def test_equal_writes_are_the_same(tmp_path: Path) -> None:
    assert compared(tmp_path, [post(1), post(2, "b")], [post(1), post(2, "b")]).differences == []


OTHERS: dict[str, tuple[list[Exchange], list[Exchange], list[tuple[Change, str]]]] = {
    "another value": ([post("1")], [post("2")], [(Change.CHANGED, "one")]),
    "one less": ([post("1"), post("2", "b", "two")], [post("1")], [(Change.MISSING, "two")]),
    "one more": ([post("1")], [post("1"), post("2", "b", "two")], [(Change.ADDITIONAL, "two")]),
    "another object": ([post("1")], [post("1", "b")], [(Change.MISSING, "one"), (Change.ADDITIONAL, "one")]),
    "another order": ([post("1"), post("2", "b")], [post("2", "b"), post("1")], [(Change.MOVED, "one")]),
    "another method": (
        [ask("PUT", f"{MAPS}/a", body("1"), body("1"))],
        [ask("PATCH", f"{MAPS}/a", body("1"), body("1"))],
        [(Change.MISSING, "one"), (Change.ADDITIONAL, "one")],
    ),
    "another query": (
        [ask("DELETE", f"{MAPS}/a?propagationPolicy=Orphan")],
        [ask("DELETE", f"{MAPS}/a")],
        [(Change.CHANGED, "one")],
    ),
    "a number of another type": ([post(1)], [post("1")], [(Change.CHANGED, "one")]),
    "a field more": (
        [ask("PATCH", f"{MAPS}/a", {"data": {"a": "1"}})],
        [ask("PATCH", f"{MAPS}/a", {"data": {"a": "1", "b": "2"}})],
        [(Change.CHANGED, "one")],
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_writes_are_found_with_their_task(case: str, tmp_path: Path) -> None:
    before, after, expected = OTHERS[case]
    assert changes(compared(tmp_path, before, after)) == expected


def test_reads_and_dry_runs_are_no_writes(tmp_path: Path) -> None:
    reads = [ask("GET", f"{MAPS}/a"), ask("POST", f"{MAPS}?dryRun=All", body(1), body(1), 201)]
    assert compared(tmp_path, reads, []).differences == []


def test_hosts_work_at_the_same_time_and_tasks_in_their_order(tmp_path: Path) -> None:
    alpha, beta = post(1, "a", "one@alpha"), post(2, "b", "one@beta")
    assert compared(tmp_path, [alpha, beta], [beta, alpha]).differences == []


def test_uids_are_the_same_if_they_belong_to_the_same_object(tmp_path: Path) -> None:
    def story(first: str, second: str, used: str) -> list[Exchange]:
        return [post("1", "b", uid=first), post("1", "c", uid=second), post(f"owner {used}", "d")]

    record = story("uid-b-then", "uid-c-then", "uid-b-then")
    assert compared(tmp_path, record, story("uid-b-now", "uid-c-now", "uid-b-now")).differences == []
    assert changes(compared(tmp_path, record, story("uid-b-now", "uid-c-now", "uid-c-now"))) == [
        (Change.CHANGED, "one")
    ]


def test_generated_names_are_the_same_in_the_order_of_their_appearance(tmp_path: Path) -> None:
    def story(first: str, second: str, used: str) -> list[Exchange]:
        generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "job-"}}
        made = [
            ask("POST", MAPS, generated, config_map("", name, generateName="job-"), 201) for name in (first, second)
        ]
        return [*made, ask("DELETE", f"{MAPS}/{first}"), ask("PATCH", f"{MAPS}/x", {"data": {"last": f"is {used}"}})]

    record = story("job-x7k2p", "job-abcde", "job-abcde")
    assert compared(tmp_path, record, story("job-00001", "job-00002", "job-00002")).differences == []
    assert changes(compared(tmp_path, record, story("job-00001", "job-00002", "job-00001"))) == [
        (Change.CHANGED, "one")
    ]


def test_a_resource_version_is_what_the_cluster_gives(tmp_path: Path) -> None:
    def story(version: str, sent: str) -> list[Exchange]:
        found = config_map("1", resourceVersion=version)
        put = body("2") | {"metadata": {"name": "a", "resourceVersion": sent}}
        return [ask("GET", f"{MAPS}/a", None, found), ask("PUT", f"{MAPS}/a", put, found)]

    assert compared(tmp_path, story("111", "111"), story("222", "222")).differences == []
    assert changes(compared(tmp_path, story("111", "111"), story("222", "99"))) == [(Change.CHANGED, "one")]


TIMES = {
    "RFC 3339": (f"at {STARTED}Z", f"at {LATER}Z", True),
    "with an offset": ("2027-01-15T08:00:03.5+00:00", "2027-03-01T10:00:01+00:00", True),
    "as Python prints it": ("2027-01-15 08:00:01.000001", "2027-03-01 10:00:00.5", True),
    "basic": ("backup-20270115T080000", "backup-20270301T100000", True),
    "seconds": ("1800000000", "1803895200", True),
    "milliseconds": ("1800000000123", "1803895200123", True),
    "a date": ("2027-01-15", "2027-03-01", True),
    "the time itself": ("2027-01-15T08:00:00Z", "2027-01-15T08:00:02Z", True),
    "an hour more": (f"at {STARTED}Z", "at 2027-03-01T11:00:00Z", False),
    "another day": ("2027-01-15", "2027-03-02", False),
    "another text": (f"at {STARTED}Z", f"on {LATER}Z", False),
    "a number that is no time": ("1200000000", "1200000001", False),
}


@pytest.mark.parametrize("case", TIMES)
def test_times_are_the_same_if_they_are_as_far_from_the_start(case: str, tmp_path: Path) -> None:
    before, after, is_same = TIMES[case]
    assert (compared(tmp_path, [post(before)], [post(after)]).differences == []) is is_same


def test_numbers_that_are_times_are_compared_as_times() -> None:
    first, second = parse_time(f"{STARTED}Z"), parse_time(f"{LATER}Z")
    assert first is not None
    assert second is not None
    clocks = Clocks(first, second, 10.0)
    assert clocks.are_same_numbers(1_800_000_000_000, 1_803_895_200_500)
    assert not clocks.are_same_numbers(3, 4)


def secret(value: str) -> RawObject:
    data = {"password": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "data": data}


def test_a_secret_that_the_role_makes_is_another_one_in_each_run(tmp_path: Path) -> None:
    def story(made: str, copied: str) -> list[Exchange]:
        return [ask("POST", SECRETS, secret(made), secret(made), 201), post(f"u:{copied}@h")]

    record = story("generated-then", "generated-then")
    assert compared(tmp_path, record, story("generated-now!", "generated-now!")).differences == []
    assert changes(compared(tmp_path, record, story("generated-now!", "something-else"))) == [(Change.CHANGED, "one")]


def test_a_difference_after_a_secret_was_read_is_marked(tmp_path: Path) -> None:
    read = by("zero", ask("GET", f"{SECRETS}/s", None, secret("a-secret-value")))
    found = compared(tmp_path, [post("x", "b"), read, post("hash-of-it")], [post("y", "b"), read, post("other")])
    assert [each.is_secret_derived for each in found.differences] == [False, True]


def test_a_secret_that_was_read_has_to_be_the_same(tmp_path: Path) -> None:
    read = ask("GET", f"{SECRETS}/s", None, secret("a-secret-value"))
    record = [read, post("a-secret-value")]
    # The run in a sandbox gets the placeholder; a role that writes another text of this length does something else.
    found = compared(tmp_path, record, [post("b-secret-value")])
    assert [(each.change, each.is_secret_derived) for each in found.differences] == [(Change.CHANGED, True)]


def a_secret(**values: str) -> RawObject:
    applied = json.dumps({"kind": "Secret", "stringData": values}, separators=(",", ":"))
    metadata = {"name": "s", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}


@pytest.mark.parametrize("value", ["1", "on", "true", "none", "a-long-value"])
def test_values_of_a_secret_are_the_same_however_short(value: str, tmp_path: Path) -> None:
    def write(word: str) -> list[Exchange]:
        encoded = {"data": {"word": base64.b64encode(word.encode()).decode()}}
        operations = [{"op": "replace", "path": "/stringData/word", "value": word}]
        return [
            ask("POST", SECRETS, a_secret(word=word), a_secret(word=word), 201),
            ask("PATCH", f"{SECRETS}/s", encoded, a_secret(word=word)),
            ask("PATCH", f"{SECRETS}/s", operations, a_secret(word=word)),
        ]

    assert compared(tmp_path, write(value), write(value)).differences == []
    assert len(compared(tmp_path, write(value), write(f"{value}1")).differences) == 3


def test_what_no_log_hides_is_compared_by_its_form(tmp_path: Path) -> None:
    def compare_hidden(after: Exchange) -> list[tuple[Change, str]]:
        return changes(compared(tmp_path, [post("hidden text")], [after], hidden=("one",)))

    assert compare_hidden(post("hidden text")) == []
    assert compare_hidden(post("a longer hidden text")) == [(Change.CHANGED, "one")]
    assert compare_hidden(post("hidden text", "b")) != []


def test_writes_after_the_end_of_a_run_that_did_not_come_to_its_end_are_counted(tmp_path: Path) -> None:
    record = writes_of(lines_of(record_of(tmp_path, post("1"), post("2", "b"), post("3", "c"))))
    run = writes_of(RunLines.of_run(run_of(post("1"))))
    found = compare(record, run, has_ended_early=True)
    assert (found.differences, found.not_reached) == ([], 2)
    assert len(compare(record, run, has_ended_early=False).differences) == 2


def test_a_write_that_only_one_cluster_refused_is_noted(tmp_path: Path) -> None:
    refused = ask("POST", MAPS, body(1), {"kind": "Status"}, 403)
    found = compared(tmp_path, [refused], [post(1)])
    assert found.differences == []
    assert found.notes == [f"POST {MAPS} was refused with 403 in the record, and is accepted with 201 in the sandbox"]
