"""The comparison of the objects that two runners leave in a cluster."""

import base64
from typing import Any

import pytest
from bench.field_objects import comparable, compare, written
from hypothesis import assume, given
from hypothesis import strategies as st

from rolecall.kube.references import RawObject


def config_map(data: Any, uid: str = "a-uid", **metadata: Any) -> RawObject:
    """Return a ConfigMap as the API server serves it."""
    own = {"name": "one", "namespace": "field", "uid": uid, "resourceVersion": uid, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": data}


def secret(value: bytes) -> RawObject:
    """Return a Secret with one value."""
    return {**config_map({"password": base64.b64encode(value).decode()}), "kind": "Secret"}


def test_server_metadata_and_status_of_built_in_kinds_are_no_difference() -> None:
    ours = {**config_map({"a": "b"}, "one-uid", generation=1), "status": {"seen": 1}}
    theirs = {**config_map({"a": "b"}, "other-uid", generation=2), "status": {"seen": 2}}
    comparison = compare(comparable([ours]), comparable([theirs]))
    assert (comparison.equal, comparison.differences, comparison.random) == (1, [], [])


def test_uid_of_a_compared_object_is_replaced_in_other_objects() -> None:
    def objects(uid: str) -> list[RawObject]:
        return [config_map({}, uid), config_map({"owner": f"pvc-{uid}"}, f"{uid}-2", name="two")]

    assert comparable(objects("1234-abcd")) == comparable(objects("9876-fedc"))


def test_object_with_a_built_in_owner_is_not_compared() -> None:
    owned = config_map({}, ownerReferences=[{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "y"}])
    assert comparable([owned]) == {}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("image: shop:1.2.3", "image: shop:1.2.4"),
        ("postgres", "database"),
        ("127.0.0.1,localhost", ""),
        ("replicas-for-production", "replicas-for-testing"),
        ("web-alpha", "web-gamma"),
        ("job-x7k2b", "jobs-x7k2b"),
        (1, 2),
        (None, "text"),
    ],
)
def test_different_value_is_reported_with_its_path(ours: Any, theirs: Any) -> None:
    comparison = compare(comparable([config_map({"key": ours})]), comparable([config_map({"key": theirs})]))
    assert comparison.equal == 0
    assert [line.partition(":")[0] for line in comparison.differences] == ["ConfigMap field/one.data.key"]


def test_time_duration_pem_block_and_random_token_are_no_difference() -> None:
    ours = {"t": "2026-01-01T00:00:00Z", "k": "-----BEGIN KEY-----\nab\n-----END KEY-----", "r": "id: x7Qa91LmZ0"}
    ours |= {"d": "Tue Nov  4 07:05:59 AM UTC 2026", "s": "0:00:10"}
    theirs = {"t": "2026-01-02T03:00:00Z", "k": "-----BEGIN KEY-----\ncde\n-----END KEY-----", "r": "id: Tk3mW8s2Bc"}
    theirs |= {"d": "Tue Nov 24 17:15:09 UTC 2026", "s": "0:01:46"}
    comparison = compare(comparable([config_map(ours)]), comparable([config_map(theirs)]))
    assert comparison.differences == []
    assert [line.partition(":")[0] for line in comparison.random] == ["ConfigMap field/one.data.r"]


@pytest.mark.parametrize(("theirs", "count"), [(b"zyxwvuts", 0), (b"short", 1)])
def test_value_of_a_secret_is_random_only_if_the_lengths_are_equal(theirs: bytes, count: int) -> None:
    comparison = compare(comparable([secret(b"abcdefgh")]), comparable([secret(theirs)]))
    assert len(comparison.differences) == count


def test_object_that_only_one_runner_wrote_is_reported() -> None:
    found = comparable([config_map({})])
    assert compare(found, {}).differences == ["ConfigMap field/one: only written by the operator"]
    assert compare({}, found).differences == ["ConfigMap field/one: only written by the peer"]


def test_written_objects_are_the_created_changed_and_deleted_ones() -> None:
    before = comparable([config_map({}, name=name) for name in ("same", "changed", "deleted")])
    after = comparable(
        [config_map({}, name="same"), config_map({"a": "b"}, name="changed"), config_map({}, name="new")]
    )
    found = written(before, after)
    assert sorted(found) == ["ConfigMap field/changed", "ConfigMap field/deleted", "ConfigMap field/new"]
    assert found["ConfigMap field/deleted"] is None


SUFFIXES = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=5, max_size=5)


@given(SUFFIXES, SUFFIXES, st.sampled_from(["job-{}", "see pod/job-{}, job-{}-x", '["job-{}"]']))
def test_generated_name_in_a_value_is_no_difference(ours: str, theirs: str, text: str) -> None:
    one, two = (config_map({"key": text.replace("{}", suffix)}) for suffix in (ours, theirs))
    comparison = compare(comparable([one]), comparable([two]))
    assert (comparison.equal, comparison.differences) == (1, [])
    assert len(comparison.random) == (ours != theirs)


@given(SUFFIXES, SUFFIXES, SUFFIXES, SUFFIXES)
def test_objects_whose_names_differ_in_the_generated_end_are_compared(a: str, b: str, c: str, d: str) -> None:
    assume(len({a, b, c, d}) == 4)

    def objects(*suffixes: str) -> list[RawObject]:
        values = enumerate(suffixes)
        return [config_map({"value": str(value)}, f"uid {suffix}", name=f"job-{suffix}") for value, suffix in values]

    same = compare(comparable(objects(a, b)), comparable(objects(c, d)))
    assert (same.equal, same.differences, len(same.random)) == (2, [], 2)
    further = compare(comparable(objects(a)), comparable(objects(c, d)))
    assert further.differences == [f"ConfigMap field/job-{d}: only written by the peer"]
    different = compare(comparable(objects(a)), comparable([config_map({"value": "x"}, name=f"job-{c}")]))
    assert [line.partition(":")[0] for line in different.differences] == [f"ConfigMap field/job-{a}.data.value"]
