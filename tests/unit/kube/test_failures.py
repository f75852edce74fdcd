from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rolecall.kube.failures import (
    Failure,
    State,
    clock_text,
    common_message,
    failures_of,
    groups_of,
    plural_kind,
    short_message,
    state_of,
)
from rolecall.kube.references import GVK, ObjectKey

TEAM = GVK("example.com", "v1", "Team")
START = datetime(2026, 11, 28, 7, 42, tzinfo=UTC).timestamp()
VALIDATION = (
    "Task \"Validating arguments against arg spec 'main' - Set up a team\": Validation of arguments failed:\n"
    "quota.storage. Supported parameters include: cpu, memory."
)


def condition(kind: str, status: str, reason: str = "", message: str = "", at: str = "07:42") -> dict[str, str]:
    time = f"2026-11-28T{at}:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def team(name: str, *conditions: Any, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "generation": 2}
    status = {"conditions": list(conditions), **status}
    return {"apiVersion": "example.com/v1", "kind": "Team", "metadata": metadata, "status": status}


FAILED = condition("Failure", "True", "Failed", "no quota")


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], State.UNKNOWN),
        ([condition("Successful", "True")], State.READY),
        ([condition("Successful", "True"), condition("Ready", "True")], State.READY),
        ([condition("Successful", "True"), condition("Ready", "False", "NotReadyYet")], State.NOT_READY),
        ([condition("Ready", "Unknown", "RunRequeued"), condition("Reconciling", "True")], State.NOT_READY),
        ([condition("Running", "True", "Running")], State.RUNNING),
        ([condition("Running", "True", "Successful"), condition("Successful", "True")], State.READY),
        ([condition("Running", "True", "Running"), FAILED], State.FAILING),
        ([condition("Ready", "False", "RunFailed", "no quota")], State.FAILING),
        ([condition("Stalled", "True", "RunFailed", "no quota")], State.FAILING),
        ([condition("Failure", "False"), condition("Paused", "True"), condition("Successful", "True")], State.PAUSED),
    ],
)
def test_state_follows_from_conditions(conditions: list[Any], state: State) -> None:
    assert state_of(team("checkout", *conditions)).state is state


def test_failure_has_its_message_and_its_oldest_time() -> None:
    ready = condition("Ready", "False", "RunFailed", "no quota", at="07:30")
    found = state_of(team("checkout", ready, FAILED, condition("Stalled", "True", "RunFailed", "no quota", at="07:43")))
    assert (found.reason, found.message, found.since) == ("Failed", "no quota", START)


def test_object_whose_change_was_not_observed_is_unknown() -> None:
    found = state_of(team("checkout", condition("Ready", "True"), observedGeneration=1))
    assert (found.state, found.reason) == (State.UNKNOWN, "generation 2 not observed yet, the last is 1")


def test_object_being_deleted_is_deleting_unless_its_finalizer_fails() -> None:
    obj = team("checkout", condition("Ready", "True"))
    obj["metadata"]["deletionTimestamp"] = "2026-11-28T08:00:00Z"
    assert state_of(obj).state is State.DELETING
    obj["status"]["conditions"].append(FAILED)
    assert state_of(obj).state is State.FAILING


@pytest.mark.parametrize("odd", [None, "text", {"conditions": "x"}, {"conditions": [1, {"type": ["x"], "status": {}}]}])
def test_odd_status_is_unknown(odd: object) -> None:
    found = state_of({"apiVersion": "example.com/v1", "kind": "Team", "metadata": {"name": "x"}, "status": odd})
    assert (found.state, found.since) == (State.UNKNOWN, None)


@pytest.mark.parametrize(
    ("message", "short"),
    [
        (VALIDATION, "Validation of arguments failed: quota.storage"),
        ("Task 'Limit it': exceeded\nTask 'Limit it' on b: other", "Limit it: exceeded"),
        ("Finalizer example.com/team: Task 'Remove it' on b: still\n  there", "Remove it: still there"),
        ("the run failed without a message", "the run failed without a message"),
        ("Task 'Read': " + "word " * 60, "Read: " + "word " * 37 + "word…"),
        ("", ""),
    ],
)
def test_short_message_is_one_line(message: str, short: str) -> None:
    assert short_message(message) == short


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('namespaces "checkout" not found', 'namespaces "search" not found'),
        ("team-checkout/quota: checkout-quota is full", "team-search/quota: search-quota is full"),
        ("at 2026-11-28T07:42:10.5Z after 1.25 s", "at 2026-11-28T07:43:00Z after 12.5 s"),
        ("0:00:01.23 at 10.0.0.1:8443", "0:00:10 at 10.0.12.1:8443"),
        ("uid 6f1c1f64-5f1c-4d6c-8f7e-111111111111", "uid 6f1c1f64-5f1c-4d6c-8f7e-222222222222"),
        ("pod api-7d9f8b6c5d-x2v4q", "pod api-6c8f8b6c5d-p9v4q"),
        ("requested 10Gi of 5Gi, version 10231", "requested 500Mi of 400Mi, version 88123"),
    ],
)
def test_names_times_and_amounts_do_not_distinguish_messages(one: str, other: str) -> None:
    first, second = common_message(one, ObjectKey("", "checkout")), common_message(other, ObjectKey("", "search"))
    assert first == second
    assert "…" in first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP status 403", "HTTP status 404"),
        ("exit code 1", "exit code 2"),
        ("missing: size", "missing: color"),
        ("a deployment", "an ingress"),
    ],
)
def test_codes_and_words_distinguish_messages(one: str, other: str) -> None:
    assert common_message(one, ObjectKey("", "a")) != common_message(other, ObjectKey("", "b"))


def test_short_name_is_no_word_of_a_message() -> None:
    assert common_message('a team "a" has a quota', ObjectKey("", "a")) == 'a team "…" has a quota'


def test_equal_failures_are_one_group() -> None:
    teams = [team(f"team-{number}", condition("Failure", "True", "Failed", VALIDATION)) for number in range(33)]
    teams[7]["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-28T07:40:00Z"
    teams += [team("other", condition("Ready", "True")), team("last", FAILED)]
    groups = groups_of(failures_of(map(state_of, teams)), {TEAM: len(teams)})
    now = START + 3600
    assert [(each.heading(now), each.message) for each in groups] == [
        ("33 of 35 Teams fail since 07:40", "Validation of arguments failed: quota.storage"),
        ("1 of 35 Teams fails since 07:42", "no quota"),
    ]
    assert groups[0].keys[:3] == (ObjectKey("", "team-0"), ObjectKey("", "team-1"), ObjectKey("", "team-10"))


def test_group_of_different_messages_shows_the_common_parts() -> None:
    failures = [Failure(TEAM, ObjectKey("", name), f'namespace "{name}" is full') for name in ("search", "checkout")]
    (group,) = groups_of(failures, {})
    assert (group.message, group.heading(START)) == ('namespace "…" is full', "2 of 2 Teams fail")
    (group,) = groups_of(failures[:1], {TEAM: 1})
    assert (group.message, group.heading(START)) == ('namespace "search" is full', "1 of 1 Team fails")


def test_kinds_are_separate_groups() -> None:
    other = GVK("example.com", "v1", "Policy")
    groups = groups_of([Failure(gvk, ObjectKey("", "x"), "full") for gvk in (TEAM, other)], {TEAM: 2, other: 3})
    assert [each.heading(START) for each in groups] == ["1 of 3 Policies fails", "1 of 2 Teams fails"]


def test_times_of_other_days_have_a_date() -> None:
    assert clock_text(START, START + 600) == "07:42"
    assert clock_text(START, START + 600, timezone(timedelta(hours=1))) == "08:42"
    assert clock_text(START, START + 86400) == "2026-11-28 07:42"


@pytest.mark.parametrize("odd", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "yesterday", "", None, 7])
def test_time_that_no_clock_shows_is_unknown(odd: object) -> None:
    assert state_of(team("checkout", FAILED | {"lastTransitionTime": odd})).since is None


def test_plural_kinds_keep_their_capitals() -> None:
    kinds = ("Team", "NetworkPolicy", "Ingress", "Gateway")
    assert tuple(map(plural_kind, kinds)) == ("Teams", "NetworkPolicies", "Ingresses", "Gateways")
