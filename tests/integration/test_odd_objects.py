"""Whatever people write into an object ends in a condition with a reason, never in a crash or a stuck queue."""

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rolecall.kube.client import Client, Selection
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import labels_of, metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.definitions import define, undefine
from tests.integration.operators import EVERY_NAMESPACE, Operator
from tests.support.things import write_role
from tests.support.world import World, condition, is_true

TASKS = """
- name: Report
  ansible.builtin.set_stats: {data: {report: "{{ 'x' * (large | default(1) | int) }}"}, aggregate: false}
- name: Show a secret
  ansible.builtin.debug: {msg: "{{ blob | b64decode }}"}
  when: blob is defined
"""
STATUS = "report: $.stats.report, copy: $.stats.report"
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
LEVELS = [1000, 1400] if sys.version_info[:2] == (3, 12) else [1500, 9000]
"""Python 3.12 reads 1,500 levels of JSON at most. What is deeper is in test_unreadable_objects.py."""


def nested(levels: int) -> dict[str, Any]:
    """Return a mapping of so many levels."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


SUCCEEDING: dict[str, Any] = {
    "no-spec": None,
    "text": "a text",
    "list": [1, {"a": 2}],
    "number": 7,
    "unicode": {"größe": "ünïcödé ☃", "键": {"值": "😀"}},
    "odd-keys": {"": 1, " ": 2, "_": 3, "__": 4, "a b": 5, "1st": 6, "-": 7, "a.b/c": 8},
    "n" * 253: {"size": 1},
    "large-result": {"large": 700_000},
}
"""Each by the name of its object."""


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture(scope="module")
def odd(defined: ControlPlane) -> Iterator[GVK]:
    """Yield a kind whose schema rejects nothing."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Odd")
    with asyncio.Runner() as runner:
        runner.run(_with_client(defined, lambda client: define(client, gvk)))
        yield gvk
        runner.run(_with_client(defined, lambda client: undefine(client, gvk)))


async def _with_client(plane: ControlPlane, act: Callable[[Client], Awaitable[None]]) -> None:
    async with await Client.connect(str(plane.kubeconfig)) as client:
        await act(client)


@pytest.fixture(scope="module")
def odd_operator(defined: ControlPlane, odd: GVK, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("odd")
    entry = f"- {{group: {odd.group}, version: v1, kind: Odd, role: thing, status: {{{STATUS}}}}}\n"
    (directory / "watches.yaml").write_text(entry)
    write_role(directory, TASKS)
    operator = Operator(directory, defined.kubeconfig, EVERY_NAMESPACE, ("--backoff-max", "20s"))
    operator.start()
    yield operator
    assert operator.stop() == 0


@pytest.fixture
async def operator(odd_operator: Operator) -> Operator:
    await wait_until_ready(odd_operator)
    return odd_operator


async def make(world: World, gvk: GVK, name: str, spec: Any) -> None:
    """Create an object with any spec."""
    metadata = {"name": name, "namespace": world.namespace}
    obj: RawObject = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
    await world.client.create(obj | ({} if spec is None else {"spec": spec}))


async def test_unusual_specs_succeed_or_report_the_reason(world: World, operator: Operator, odd: GVK) -> None:
    """All of them in one queue, followed by an ordinary object."""
    for name, spec in SUCCEEDING.items():
        await make(world, odd, name, spec)
    await make(world, odd, "too-large-a-result", {"large": 1_900_000})
    await make(world, odd, "too-large-a-status", {"large": 900_000})
    await make(world, odd, "binary", {"blob": "//4AAQL/wMGAgQ=="})
    for name in SUCCEEDING:
        await world.wait_for(odd, name, lambda obj: is_true(obj, "Successful"))
    large = await world.get(odd, "large-result")
    assert len(large["status"]["report"]) == 700_000

    failed = await world.wait_for(odd, "too-large-a-result", lambda obj: is_true(obj, "Failure"))
    assert "a run may report at most 1Mi" in condition(failed, "Failure")["message"]
    too_large = await world.wait_for(odd, "too-large-a-status", lambda obj: is_true(obj, "Successful"))
    assert "the mapped status was rejected" in condition(too_large, "Successful")["message"]
    assert "report" not in too_large["status"]

    binary = await world.wait_for(odd, "binary", lambda obj: is_true(obj, "Successful") or is_true(obj, "Failure"))
    assert is_true(binary, "Successful") or "Show a secret" in condition(binary, "Failure")["message"]
    await make(world, odd, "ordinary", {"size": 1})
    await world.wait_for(odd, "ordinary", lambda obj: is_true(obj, "Successful"))
    assert operator.messages("Reconcile crashed") == []


@pytest.mark.parametrize("levels", LEVELS)
async def test_deeply_nested_spec_does_not_stop_operator(
    world: World, operator: Operator, odd: GVK, levels: int
) -> None:
    """The object says that it cannot be run; the operator continues with the others."""
    assert json.dumps(nested(levels))
    await make(world, odd, "deep", nested(levels))
    deep = await world.wait_for(odd, "deep", lambda obj: is_true(obj, "Failure") or is_true(obj, "Successful"))
    assert is_true(deep, "Successful") or condition(deep, "Failure")["message"]
    await make(world, odd, "ordinary", {"size": 1})
    await world.wait_for(odd, "ordinary", lambda obj: is_true(obj, "Successful"))
    assert operator.is_ready()


ODD_NAMES = ("a:b", "a#b", "a?b", "a&b=c", "a b", "a\nb", "a'b\"c", "a\\b", "a+b", "ä☃", "...", "{{ x }}", "n" * 253)


async def test_objects_with_any_name_are_read_changed_and_deleted(world: World) -> None:
    """The kind ClusterRole accepts every name that can be a segment of a path."""
    prefix = f"{world.namespace}-"
    await world.client.create(cluster_role(f"{prefix}a"))  # to which "a#b" and "a?b" would lead
    for name in ODD_NAMES:
        key = ObjectKey("", f"{prefix}{name}"[:253])
        await world.client.create(cluster_role(key.name))
        assert metadata_of(await world.client.get(CLUSTER_ROLE, key))["name"] == key.name
        found = await world.client.patch(CLUSTER_ROLE, key, {"metadata": {"labels": {"changed": "true"}}})
        assert (ObjectKey.of_object(found), labels_of(found)) == (key, {"changed": "true"})
        one = [
            obj async for page, _ in world.client.list_pages(CLUSTER_ROLE, None, Selection(key.name)) for obj in page
        ]
        assert [ObjectKey.of_object(obj) for obj in one] == [key]
        await world.client.delete(CLUSTER_ROLE, key)
        with pytest.raises(NotFoundError):
            await world.client.get(CLUSTER_ROLE, key)
    assert labels_of(await world.client.get(CLUSTER_ROLE, ObjectKey("", f"{prefix}a"))) == {}
    await world.client.delete(CLUSTER_ROLE, ObjectKey("", f"{prefix}a"))


def cluster_role(name: str) -> RawObject:
    """Return a ClusterRole without rules."""
    return {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind, "metadata": {"name": name}, "rules": []}
