"""A status reaches the API server whatever the schema of its CRD is, or the user learns why it can't."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rolecall.kube.references import GVK, RawObject
from tests.integration.definitions import define, undefine
from tests.integration.operators import Operator
from tests.support.things import write_role
from tests.support.world import EVENT, TIMEOUT_SECONDS, World, condition, eventually, is_true

CONDITION: dict[str, Any] = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {
            "type": "string",
            "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",  # noqa: E501 - as controller-gen writes it
        },
    },
}
"""The schema that controller-gen writes for ``metav1.Condition``."""

LIST = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
ROLE = "- name: Boom\n  ansible.builtin.fail: {msg: '{{ \"no more coffee \" * 90 }}'}\n  when: fails\n"


def conditions(condition: RawObject, **more: Any) -> RawObject:
    """Return the schema of a status with such conditions."""
    return {"type": "object", "properties": {"conditions": {**LIST, "items": condition, **more}}}


def limited(name: str, **limits: Any) -> RawObject:
    """Return the schema of a condition with further limits of one property."""
    properties = CONDITION["properties"]
    return {**CONDITION, "properties": {**properties, name: {**properties[name], **limits}}}


class Kinds:
    """The kinds of a test, with the schema of their status."""

    def __init__(self, world: World, operator: Operator) -> None:
        self.world = world
        self.operator = operator
        self.gvks: list[GVK] = []

    async def start(self, **statuses: RawObject) -> None:
        """Define the kinds, create an object of each whose role succeeds and one whose role fails, and run."""
        group = f"g{uuid.uuid4().hex[:8]}.rolecall.dev"
        for name, status in statuses.items():
            gvk = GVK(group, "v1", name.title())
            self.gvks.append(gvk)
            spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            schema = {"type": "object", "properties": {"spec": spec, "status": status}}
            await define(self.world.client, gvk, schema=schema)
            for one, fails in (("good", False), ("bad", True)):
                metadata = {"name": one, "namespace": self.world.namespace}
                obj = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
                await self.world.client.create({**obj, "spec": {"fails": fails}})
        entries = [f"- {{group: {gvk.group}, version: v1, kind: {gvk.kind}, role: thing}}\n" for gvk in self.gvks]
        (self.operator.directory / "watches.yaml").write_text("".join(entries))
        write_role(self.operator.directory, ROLE)
        self.operator.start()

    async def event(self, kind: str, name: str = "good") -> RawObject:
        """Wait for the Event about the status of an object, and return it."""

        async def look() -> list[RawObject]:
            events = await self.world.objects(EVENT)
            about = ("StatusRejected", kind, name)
            return [
                each
                for each in events
                if (each["reason"], each["involvedObject"]["kind"], each["involvedObject"]["name"]) == about
            ]

        return (await eventually(look, bool, TIMEOUT_SECONDS, f"an Event about the status of {kind} {name}"))[0]


@pytest.fixture
async def kinds(world: World, thing_operator: Operator) -> AsyncIterator[Kinds]:
    """Yield kinds that are removed after the test."""
    kinds = Kinds(world, thing_operator)
    yield kinds
    thing_operator.stop()
    for gvk in kinds.gvks:
        await undefine(world.client, gvk)


async def test_results_are_written_with_the_schema_of_controller_gen(kinds: Kinds, world: World) -> None:
    status = conditions(CONDITION)
    status["properties"]["observedGeneration"] = {"type": "integer", "format": "int64", "minimum": 0}
    await kinds.start(strict=status)
    [gvk] = kinds.gvks
    good = await world.wait_for(gvk, "good", lambda obj: is_true(obj, "Ready"))
    bad = await world.wait_for(gvk, "bad", lambda obj: is_true(obj, "Failure"))
    assert condition(good, "Failure")["status"] == condition(bad, "Successful")["status"] == "False"
    assert all(each["reason"] for obj in (good, bad) for each in obj["status"]["conditions"])
    assert [each["reason"] for each in await world.objects(EVENT) if each["reason"] == "StatusRejected"] == []


async def test_rejected_status_is_reported_and_written_in_part(kinds: Kinds, world: World) -> None:
    await kinds.start(
        short=conditions(limited("message", maxLength=300)),
        few=conditions(limited("type", enum=["Ready", "Progressing"])),
        single=conditions(CONDITION, maxItems=1),
        wrong={
            "type": "object",
            "properties": {"observedGeneration": {"type": "string"}, **conditions(CONDITION)["properties"]},
        },
    )
    short, few, single, wrong = kinds.gvks
    bad = await world.wait_for(short, "bad", lambda obj: is_true(obj, "Failure"))
    assert condition(bad, "Failure")["message"].startswith("Task 'Boom': no more coffee no more coffee")
    assert "Too long" in (await kinds.event("Short", "bad"))["message"]
    for gvk in (few, single, wrong):
        good = await world.wait_for(gvk, "good", lambda obj: is_true(obj, "Ready"))
        bad = await world.wait_for(gvk, "bad", lambda obj: condition(obj, "Ready").get("status") == "False")
        assert condition(bad, "Ready")["reason"] == "RunFailed"
        assert ("Successful" in {each["type"] for each in good["status"]["conditions"]}) == (gvk is wrong)
        assert "a part of it was written" in (await kinds.event(gvk.kind))["message"]


async def test_status_that_cannot_be_written_is_reported_and_retried(kinds: Kinds) -> None:
    await kinds.start(
        dropped={"type": "object"},
        other={"type": "object", "required": ["phase"], "properties": {"phase": {"type": "string"}}},
    )
    message = (await kinds.event("Dropped"))["message"]
    assert message.startswith("The schema of the CRD drops conditions, or their reasons: Running, Successful, Failure")
    assert "status.phase: Required value" in (await kinds.event("Other"))["message"]

    async def runs() -> int:
        return kinds.operator.runs("Other", "good")

    await eventually(runs, lambda count: count > 1, TIMEOUT_SECONDS, "the reconcile is retried")
    assert kinds.operator.messages("Reconcile succeeded", kind="Other") == []
