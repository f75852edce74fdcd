"""Manifests on the page about OLM match the bundle that it describes."""

from typing import Any

import yaml

from rolecall.workbench.bundle.files import CHANNEL
from rolecall.workbench.bundle.service_version import Release
from tests.unit.docs.pages import PROJECT, blocks

PACKAGE = "web"
PAGE = (PROJECT / "docs/guides/olm.md").read_text()
OBJECTS: list[dict[str, Any]] = [yaml.safe_load(block) for block in blocks(PAGE, "yaml")]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if each.get("kind") == kind]
    return found


def test_the_subscription_asks_for_the_package_and_channel_of_the_bundle() -> None:
    spec = of_kind("Subscription")["spec"]
    assert (spec["name"], spec["channel"]) == (PACKAGE, CHANNEL)


def test_the_subscription_asks_the_catalog_of_the_page() -> None:
    spec, catalog = of_kind("Subscription")["spec"], of_kind("CatalogSource")["metadata"]
    assert (spec["source"], spec["sourceNamespace"]) == (catalog["name"], catalog["namespace"])


def test_the_extension_asks_for_the_package_and_channel_of_the_bundle_in_the_catalog() -> None:
    source = of_kind("ClusterExtension")["spec"]["source"]["catalog"]
    assert (source["packageName"], source["channels"]) == (PACKAGE, [CHANNEL])
    image = of_kind("ClusterCatalog")["spec"]["source"]["image"]["ref"]
    assert image == of_kind("CatalogSource")["spec"]["image"]


def test_the_group_is_where_the_subscription_is() -> None:
    assert of_kind("OperatorGroup")["metadata"]["namespace"] == of_kind("Subscription")["metadata"]["namespace"]


def test_the_channel_of_the_catalog_is_that_of_the_bundle() -> None:
    (channel,) = [each for each in OBJECTS if each.get("schema") == "olm.channel"]
    assert (channel["package"], channel["name"]) == (PACKAGE, CHANNEL)


def test_the_releases_of_the_catalog_are_named_as_those_of_the_bundle() -> None:
    entries = [entry["name"] for each in OBJECTS for entry in each.get("entries", [])]
    assert entries
    assert [name for name in entries if not _is_release(name)] == []


def _is_release(name: str) -> bool:
    package, _, version = name.partition(".v")
    return package == PACKAGE and bool(Release(version, "registry.example/rolecall:0.1.0"))
