"""A project that uses what projects rarely use, unchanged: each kind of it stands for one feature of the Go runner."""

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import NAMESPACE, wait_until_ready
from tests.integration.example_projects import ADVANCED as PROJECT
from tests.integration.operators import Operator
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, always, condition, eventually, is_true

SECRET = GVK("", "v1", "Secret")
VERBOSITY = "ansible.sdk.operatorframework.io/verbosity"


@pytest.fixture(scope="module")
def advanced(defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Yield the project's operator, which serves the whole cluster."""
    operator = PROJECT.operator(defined, tmp_path_factory.mktemp("advanced"), "")
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
async def here(advanced: Operator, world: World) -> AsyncIterator[World]:
    """Yield a namespace of the test's own, once the operator works; one next to it goes with it."""
    await wait_until_ready(advanced)
    yield world
    if await find_namespace(world.client, f"{world.namespace}-other"):
        await world.client.delete(NAMESPACE, ObjectKey("", f"{world.namespace}-other"))


async def test_a_vaulted_variable_is_decrypted_by_the_arguments_of_the_entry_point(here: World) -> None:
    await create(here, "ArgsTest")
    assert await kept(here) == {"text": "the vaulted text"}


async def test_parameters_keep_their_names_when_the_watch_says_so(here: World) -> None:
    await create(here, "CaseTest", camelCaseVar="as written")
    assert await kept(here) == {"text": "as written", "converted": "False"}


async def test_a_role_of_a_collection_runs_by_its_full_name(here: World) -> None:
    await create(here, "CollectionTest")
    assert await kept(here) == {"text": "operator_sdk.test_fixtures.dummy"}


async def test_dependents_elsewhere_are_annotated_and_watched(here: World) -> None:
    await create(here, "ClusterAnnotationTest")
    other = World(here.client, f"{here.namespace}-other")
    expected = {
        "operator-sdk/primary-resource": f"{here.namespace}/one",
        "operator-sdk/primary-resource-type": "ClusterAnnotationTest.test.example.com",
    }
    config_map = await other.wait_for(CONFIG_MAP, "one", bool)
    namespace = await here.client.get(NAMESPACE, ObjectKey("", other.namespace))
    for dependent in (config_map, namespace):
        assert expected.items() <= metadata_of(dependent)["annotations"].items()
        assert "ownerReferences" not in metadata_of(dependent)
    await wait_for_success(here, "ClusterAnnotationTest")

    relabelled = {"metadata": {"labels": {"purpose": "changed"}}}
    await here.client.patch(NAMESPACE, ObjectKey("", other.namespace), relabelled)
    await eventually(
        lambda: find_namespace(here.client, other.namespace),
        lambda obj: obj and metadata_of(obj)["labels"]["purpose"] == "kept",
        TIMEOUT_SECONDS,
        "the label is put back",
    )
    await other.delete(CONFIG_MAP, "one")
    await other.wait_for(CONFIG_MAP, "one", bool)


async def test_an_object_of_the_cluster_owns_what_is_made_for_it(here: World) -> None:
    key = ObjectKey("", f"one-{here.namespace}")
    primary = await here.client.create(
        {
            "apiVersion": "test.example.com/v1alpha1",
            "kind": "ClusterScopeTest",
            "metadata": {"name": key.name},
            "spec": {"target": here.namespace},
        }
    )
    made = await here.wait_for(CONFIG_MAP, key.name, bool)
    assert made["data"] == {"namespace": '""'}
    assert [owner["uid"] for owner in metadata_of(made)["ownerReferences"]] == [metadata_of(primary)["uid"]]
    await here.client.delete(GVK.of_object(primary), key)
    await here.wait_until_gone(CONFIG_MAP, key.name, TIMEOUT_SECONDS)


async def test_an_object_that_is_deleted_during_its_run_gets_its_finalizer_run(here: World) -> None:
    await create(here, "FinalizerConcurrencyTest")
    await here.wait_for(CONFIG_MAP, "one-running", bool)
    await here.delete(kind("FinalizerConcurrencyTest"), "one")
    await here.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: unpause}}")
    await here.wait_until_gone(kind("FinalizerConcurrencyTest"), "one", TIMEOUT_SECONDS)
    assert await here.find(CONFIG_MAP, "unpause") is None


async def test_a_finalizer_of_variables_runs_the_main_role_with_them(here: World) -> None:
    other = World(here.client, f"{here.namespace}-other")
    await here.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
    await create(here, "FinalizerVarsTest", target=other.namespace)
    await other.wait_for(CONFIG_MAP, "one", bool)
    await here.delete(kind("FinalizerVarsTest"), "one")
    await here.wait_until_gone(kind("FinalizerVarsTest"), "one", TIMEOUT_SECONDS)
    assert await other.find(CONFIG_MAP, "one") is None


async def test_an_inventory_of_ones_own_and_plugins_of_ansible_cfg_count(here: World) -> None:
    await create(here, "InventoryTest", {VERBOSITY: "0"})
    assert await kept(here) == {"text": "set for the group", "filtered": "SET FOR THE GROUP!"}
    await wait_for_success(here, "InventoryTest")


async def test_a_play_comes_back_as_often_as_it_asks_to(here: World) -> None:
    await create(here, "ReconciliationTest")

    def is_done(obj: RawObject) -> bool:
        return has_succeeded(obj) and obj["status"].get("iterations") == 5

    await here.wait_for(kind("ReconciliationTest"), "one", is_done)
    await always(lambda: kept(here), lambda data: data["iterations"] == "5", 1.5, "five times and no more")


@pytest.mark.parametrize(
    ("period", "message"), [("soon", "invalid time input"), ("", "invalid requeue time: not a duration: ''")]
)
async def test_a_time_that_is_none_is_a_failure_that_says_so(here: World, period: str, message: str) -> None:
    await create(here, "ReconciliationTest", period=period)
    failed = await here.wait_for(kind("ReconciliationTest"), "one", lambda obj: is_true(obj, "Failure"))
    assert message in condition(failed, "Failure")["message"]
    await here.delete(kind("ReconciliationTest"), "one")


async def test_a_secret_is_reconciled_whenever_it_changes_if_the_selector_takes_it(here: World) -> None:
    for name, labels in (("unmarked", "{}"), ("one", "{reconcile: 'yes'}")):
        await here.create(
            f"{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, labels: {labels}}}, stringData: {{text: a}}}}"
        )
    assert await kept(here) == {"text": "a"}
    await here.patch(SECRET, "one", {"data": {"text": base64.b64encode(b"b").decode()}})
    await here.wait_for(CONFIG_MAP, "one", lambda obj: obj["data"] == {"text": "b"})
    assert await here.find(CONFIG_MAP, "unmarked") is None


async def test_an_object_that_the_selector_leaves_out_is_not_touched(here: World) -> None:
    selected = await create(here, "SelectorTest", name="selected")
    await here.create(shown(selected | {"metadata": {"name": "marked", "labels": {"testLabel": "yes"}}}))
    await here.wait_for(kind("SelectorTest"), "marked", has_succeeded)
    assert "status" not in await here.get(kind("SelectorTest"), "selected")


RESPONSES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: responses, labels: {rolecall.dev/pod-responses: "true"}}
data:
  responses.yaml: |
    - {command: echo hello, stdout: "hello from the pod"}
    - {log: "line of the log"}
"""


async def test_exec_and_logs_give_a_role_the_responses_of_a_simulated_pod(here: World) -> None:
    await here.create(RESPONSES)
    await create(here, "SubresourcesTest")
    status = (await wait_for_success(here, "SubresourcesTest"))["status"]
    assert (status["executed"], status["logged"]) == ("hello from the pod", "line of the log")


async def test_nothing_but_json_is_logged_whatever_ansible_says_of_its_settings(
    here: World, advanced: Operator
) -> None:
    await create(here, "CollectionTest")
    await wait_for_success(here, "CollectionTest")
    text = [line for line in advanced.log_file.read_text().splitlines() if not line.startswith("{")]
    assert text == []


def kind(name: str) -> GVK:
    return GVK("test.example.com", "v1alpha1", name)


def shown(obj: RawObject) -> str:
    return yaml.safe_dump(obj)


async def create(
    here: World, kind_name: str, annotations: dict[str, str] | None = None, name: str = "one", **spec: Any
) -> RawObject:
    """Create an object of one of the project's kinds and return its manifest."""
    obj = {
        "apiVersion": "test.example.com/v1alpha1",
        "kind": kind_name,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec,
    }
    await here.create(shown(obj))
    return obj


def has_succeeded(obj: RawObject) -> bool:
    return is_true(obj, "Successful")


async def wait_for_success(here: World, kind_name: str) -> RawObject:
    return await here.wait_for(kind(kind_name), "one", has_succeeded)


async def kept(here: World) -> dict[str, str]:
    """Return the data that a play has written to the ConfigMap with its object's name."""
    data: dict[str, str] = (await here.wait_for(CONFIG_MAP, "one", lambda obj: "data" in obj))["data"]
    return data


async def find_namespace(client: Client, name: str) -> RawObject | None:
    return next((obj for obj in await World(client, "").objects(NAMESPACE) if metadata_of(obj)["name"] == name), None)
