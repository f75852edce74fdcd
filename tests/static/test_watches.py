from typing import Any

import pytest

from rolecall.runner.config.watches import load_watches
from tests.static.repository import BUILT_IN, ROOT, crds, documents, schema, watches

ENTRIES = [pytest.param(entry, id=entry["kind"]) for entry in watches()]


def test_the_runner_accepts_watches_yaml() -> None:
    assert len(load_watches(ROOT / "watches.yaml", {}, ROOT)) == len(watches())


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_spec_is_data_and_a_run_has_an_end(entry: dict[str, Any]) -> None:
    assert entry["markUnsafe"] is True
    assert entry["timeout"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_watched_kind_has_a_crd_of_its_version_with_a_status(entry: dict[str, Any]) -> None:
    if entry["kind"] in BUILT_IN:
        assert entry["manageStatus"] is False
        return
    spec = crds()[entry["kind"]]["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], version["name"]) == (entry["group"], entry["version"])
    assert version["subresources"]["status"] == {}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_mapped_status_field_is_in_the_schema(entry: dict[str, Any]) -> None:
    if entry.get("manageStatus", True):
        fields = schema(entry["kind"])["properties"]["status"]["properties"]
        assert {*entry["status"], "conditions", "observedGeneration"} == set(fields)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_watched_kind_has_a_sample_in_a_namespace_of_its_own(entry: dict[str, Any]) -> None:
    api_version = f"{entry['group']}/{entry['version']}"
    (sample,) = [each for each in documents("deploy/samples/*.yaml") if each["kind"] == entry["kind"]]
    assert sample["apiVersion"] == api_version
    namespaces = {
        each["metadata"]["name"] for each in documents("deploy/samples/*.yaml") if each["kind"] == "Namespace"
    }
    assert sample["metadata"]["namespace"] in namespaces


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_watched_kind_has_a_playbook(entry: dict[str, Any]) -> None:
    assert f"reconcile_kind: {entry['kind']}\n" in (ROOT / "playbooks" / f"{entry['kind'].lower()}.yml").read_text()
