"""Values that differ in every run are the same: uids, generated names, resource versions, times, and secrets."""

import base64
import json
from pathlib import Path

import pytest

from rolecall.kube.references import RawObject
from rolecall.runner.proxy.sessions import Exchange
from rolecall.workbench.replay.comparison import Change
from tests.unit.workbench.replay.runs import (
    EARLIER,
    LATER,
    MAPS,
    SECRETS,
    ask,
    body,
    by,
    changes,
    compared,
    config_map,
    post,
)


def test_uids_are_equal_if_their_objects_are(tmp_path: Path) -> None:
    def run(first: str, second: str, used: str) -> list[Exchange]:
        return [post("1", "b", uid=first), post("1", "c", uid=second), post(f"owner {used}", "d")]

    record = run("uid-b-then", "uid-c-then", "uid-b-then")
    assert compared(tmp_path, record, run("uid-b-now", "uid-c-now", "uid-b-now")).differences == []
    assert changes(compared(tmp_path, record, run("uid-b-now", "uid-c-now", "uid-c-now"))) == [(Change.CHANGED, "one")]


def test_generated_names_are_equal_in_their_order(tmp_path: Path) -> None:
    def run(first: str, second: str, used: str) -> list[Exchange]:
        generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "job-"}}
        made = [
            ask("POST", MAPS, generated, config_map("", name, generateName="job-"), 201) for name in (first, second)
        ]
        return [*made, ask("DELETE", f"{MAPS}/{first}"), ask("PATCH", f"{MAPS}/x", {"data": {"last": f"is {used}"}})]

    record = run("job-x7k2p", "job-abcde", "job-abcde")
    assert compared(tmp_path, record, run("job-00001", "job-00002", "job-00002")).differences == []
    assert changes(compared(tmp_path, record, run("job-00001", "job-00002", "job-00001"))) == [(Change.CHANGED, "one")]


def test_resource_versions_are_equal_if_read_from_the_cluster(tmp_path: Path) -> None:
    def run(version: str, sent: str) -> list[Exchange]:
        found = config_map("1", resourceVersion=version)
        put = body("2") | {"metadata": {"name": "a", "resourceVersion": sent}}
        return [ask("GET", f"{MAPS}/a", None, found), ask("PUT", f"{MAPS}/a", put, found)]

    assert compared(tmp_path, run("111", "111"), run("222", "222")).differences == []
    assert changes(compared(tmp_path, run("111", "111"), run("222", "99"))) == [(Change.CHANGED, "one")]


TIMES = {
    "RFC 3339": (f"at {EARLIER}Z", f"at {LATER}Z", True),
    "with an offset": ("2027-01-15T08:00:03.5+00:00", "2027-03-01T10:00:01+00:00", True),
    "as Python prints it": ("2027-01-15 08:00:01.000001", "2027-03-01 10:00:00.5", True),
    "basic": ("backup-20270115T080000", "backup-20270301T100000", True),
    "seconds": ("1800000000", "1803895200", True),
    "milliseconds": ("1800000000123", "1803895200123", True),
    "a date": ("2027-01-15", "2027-03-01", True),
    "the time itself": ("2027-01-15T08:00:00Z", "2027-01-15T08:00:02Z", True),
    "an hour more": (f"at {EARLIER}Z", "at 2027-03-01T11:00:00Z", False),
    "another day": ("2027-01-15", "2027-03-02", False),
    "another text": (f"at {EARLIER}Z", f"on {LATER}Z", False),
    "a number that is no time": ("1200000000", "1200000001", False),
}


def test_managed_fields_are_equal_in_any_order(tmp_path: Path) -> None:
    """The API server sorts them by time, in whole seconds."""

    def run(*managers: str) -> list[Exchange]:
        fields = [{"manager": each, "operation": "Update", "time": "2026-11-24T22:34:01Z"} for each in managers]
        return [ask("PATCH", f"{MAPS}/x", {"metadata": {"managedFields": fields}, "data": {"a": "b"}})]

    record = run("kubectl", "operator")
    assert compared(tmp_path, record, run("operator", "kubectl")).differences == []
    assert changes(compared(tmp_path, record, run("operator", "helm"))) == [(Change.CHANGED, "one")]


@pytest.mark.parametrize("case", TIMES)
def test_times_are_equal_if_their_distances_from_the_start_are(case: str, tmp_path: Path) -> None:
    before, after, is_same = TIMES[case]
    assert (compared(tmp_path, [post(before)], [post(after)]).differences == []) is is_same


def secret(value: str) -> RawObject:
    data = {"password": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "data": data}


def test_generated_secret_is_equal_if_used_consistently(tmp_path: Path) -> None:
    def run(made: str, copied: str) -> list[Exchange]:
        return [ask("POST", SECRETS, secret(made), secret(made), 201), post(f"u:{copied}@h")]

    record = run("generated-then", "generated-then")
    assert compared(tmp_path, record, run("generated-now!", "generated-now!")).differences == []
    assert changes(compared(tmp_path, record, run("generated-now!", "something-else"))) == [(Change.CHANGED, "one")]


def test_difference_after_reading_a_secret_is_marked(tmp_path: Path) -> None:
    read = by("zero", ask("GET", f"{SECRETS}/s", None, secret("a-secret-value")))
    found = compared(tmp_path, [post("x", "b"), read, post("hash-of-it")], [post("y", "b"), read, post("other")])
    assert [each.is_secret_derived for each in found.differences] == [False, True]


def test_secret_read_from_the_cluster_must_be_equal(tmp_path: Path) -> None:
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
def test_short_values_of_a_secret_are_equal(value: str, tmp_path: Path) -> None:
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


def test_texts_hidden_by_no_log_are_compared_by_length(tmp_path: Path) -> None:
    def compare_hidden(after: Exchange) -> list[tuple[Change, str]]:
        return changes(compared(tmp_path, [post("hidden text")], [after], hidden=("one",)))

    assert compare_hidden(post("hidden text")) == []
    assert compare_hidden(post("a longer hidden text")) == [(Change.CHANGED, "one")]
    assert compare_hidden(post("hidden text", "b")) != []
