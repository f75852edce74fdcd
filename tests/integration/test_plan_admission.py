"""Dry runs of planned writes on a real API server: its policies answer, and nothing is changed."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.plan.admission import with_admission
from rolecall.plan.results import Admission, AdmissionAnswer, ObjectPlan, Plan, PlannedWrite, TaskName
from tests.integration.world import CONFIG_MAP, FOO, PATIENCE, World, eventually

POLICY = GVK("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy")
BINDING = GVK("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding")
FOOS = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces"


def policy(world: World, kind: str, **spec: Any) -> RawObject:
    """Return a part of the policy of the test's namespace."""
    name = f"no-forbidden-{world.namespace}"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
async def guarded(world: World) -> AsyncIterator[World]:
    """Give a namespace in which a policy refuses and warns about ConfigMaps with the key ``forbidden``."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    made = [
        policy(
            world,
            "ValidatingAdmissionPolicy",
            matchConstraints={"resourceRules": [rule], "namespaceSelector": here},
            validations=[{"expression": "!('forbidden' in object.?data.orValue({}))", "message": "not this key"}],
        ),
        policy(
            world,
            "ValidatingAdmissionPolicyBinding",
            policyName=f"no-forbidden-{world.namespace}",
            validationActions=["Deny"],
        ),
    ]
    for obj in made:
        await world.client.create(obj)
    yield world
    for gvk in (BINDING, POLICY):
        await world.client.delete(gvk, ObjectKey("", f"no-forbidden-{world.namespace}"))


def write(method: str, target: str, body: object, status: int = 200) -> PlannedWrite:
    """Return a planned write."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return PlannedWrite(TaskName("write"), method, target, content_type, json.dumps(body).encode(), status)


def config_map(world: World, name: str, **data: str) -> RawObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": world.namespace, "resourceVersion": "1", "uid": "of-the-shadow"},
        "data": data,
    }


async def ask(world: World, *writes: PlannedWrite) -> tuple[AdmissionAnswer, ...]:
    plan = Plan((ObjectPlan(FOO, world.key("one"), writes=writes),))
    asked = await with_admission(plan, world.client, lambda _: None)
    return asked.objects[0].admission or ()


async def everything(world: World) -> dict[str, str]:
    """Return the versions of all objects that the writes are for."""
    found = [(gvk.kind, metadata_of(obj)) for gvk in (CONFIG_MAP, FOO) for obj in await world.objects(gvk)]
    return {f"{kind} {metadata['name']}": metadata["resourceVersion"] for kind, metadata in found}


async def test_the_policies_of_the_cluster_answer_and_nothing_is_changed(guarded: World) -> None:
    maps = f"/api/v1/namespaces/{guarded.namespace}/configmaps"
    foos = f"{FOOS}/{guarded.namespace}/foos"
    await guarded.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}, data: {a: b}}")
    manifest = "{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: one}, spec: SPEC}"
    [foo] = await guarded.create(manifest.replace("SPEC", "{deploymentName: a, replicas: 1}"))
    forbidden = write("POST", maps, config_map(guarded, "new", forbidden="x"), 201)

    async def is_refused() -> bool:  # a new policy takes a moment
        return (await ask(guarded, forbidden))[0].result == Admission.REFUSED

    await eventually(is_refused, bool, PATIENCE, "the policy works")
    before = await everything(guarded)
    answers = await ask(
        guarded,
        forbidden,
        write("POST", maps, config_map(guarded, "other", fine="x"), 201),
        write("PUT", f"{maps}/kept", config_map(guarded, "kept", fine="x")),
        write("PATCH", f"{maps}/kept", {"data": {"forbidden": "x"}}),
        write("PUT", f"{foos}/one", {**foo, "spec": {**foo["spec"], "replicas": 5}}),
        write("PATCH", f"{foos}/one/status", {"status": {"availableReplicas": 3}}),
        write("PATCH", f"{foos}/one", {"spec": {"replicas": "many"}}),
        write("DELETE", f"{maps}/kept", {"propagationPolicy": "Background"}),
        write("DELETE", maps, {}),
    )
    refused, skipped, accepted = Admission.REFUSED, Admission.SKIPPED, Admission.ACCEPTED
    results = [answer.result for answer in answers]
    assert results == [refused, accepted, accepted, refused, accepted, accepted, refused, skipped, skipped], answers
    assert "not this key" in answers[0].message
    assert "not this key" in answers[3].message
    assert "replicas" in answers[6].message
    assert await everything(guarded) == before


async def test_a_warning_of_the_cluster_is_told(guarded: World) -> None:
    name = f"no-forbidden-{guarded.namespace}"
    await guarded.client.patch(BINDING, ObjectKey("", name), {"spec": {"validationActions": ["Warn"]}})
    forbidden = write(
        "POST", f"/api/v1/namespaces/{guarded.namespace}/configmaps", config_map(guarded, "a", forbidden="x"), 201
    )

    async def warnings() -> tuple[str, ...]:
        return (await ask(guarded, forbidden))[0].warnings

    found = await eventually(warnings, bool, PATIENCE, "the policy warns")
    assert "not this key" in found[0]
    assert "ConfigMap a" not in await everything(guarded)
