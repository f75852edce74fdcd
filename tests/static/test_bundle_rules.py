"""Each rule of bundle validation finds what breaks it."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.static import bundle_rules as rules
from tests.static.bundle import PREFIX, Bundle, read_bundle
from tests.static.repository import ROOT

BUNDLE = read_bundle(ROOT / "deploy" / "olm")
Break = Callable[[Bundle], object]


def owned(bundle: Bundle) -> dict[str, Any]:
    return bundle.owned[0]


def container(bundle: Bundle) -> dict[str, Any]:
    (deployment,) = bundle.csv["spec"]["install"]["spec"]["deployments"]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def rule_of(bundle: Bundle) -> dict[str, Any]:
    found: dict[str, Any] = bundle.csv["spec"]["install"]["spec"]["clusterPermissions"][0]["rules"][0]
    return found


def with_examples(bundle: Bundle, change: Callable[[list[dict[str, Any]]], object]) -> None:
    examples = bundle.examples
    change(examples)
    bundle.csv["metadata"]["annotations"]["alm-examples"] = json.dumps(examples)


BREAKS: dict[str, tuple[Callable[[Bundle], Any], Break]] = {
    "a required field is missing": (rules.has_its_shape, lambda it: it.csv["spec"].pop("displayName")),
    "a field is misspelt": (rules.has_its_shape, lambda it: it.csv["spec"].update(maturty="alpha")),
    "a resource has no name": (rules.has_its_shape, lambda it: owned(it)["resources"][0].pop("name")),
    "a kind has no resources": (rules.has_its_shape, lambda it: owned(it).pop("resources")),
    "there are two icons": (rules.has_its_shape, lambda it: it.csv["spec"].update(icon=it.csv["spec"]["icon"] * 2)),
    "the name has no version": (
        rules.is_named_after_its_version,
        lambda it: it.csv["metadata"].update(name="rolecall"),
    ),
    "the version is not semantic": (rules.is_named_after_its_version, lambda it: it.csv["spec"].update(version="1.0")),
    "the name cannot be a label": (
        rules.is_named_after_its_version,
        lambda it: (it.csv["metadata"].update(name="rolecall.v1.0.0+1"), it.csv["spec"].update(version="1.0.0+1")),
    ),
    "the Kubernetes version is not semantic": (
        rules.is_named_after_its_version,
        lambda it: it.csv["spec"].update(minKubeVersion="1.29"),
    ),
    "an owned kind is not defined": (rules.owns_its_definitions, lambda it: it.others.remove(it.crds[0])),
    "a defined kind is not owned": (rules.owns_its_definitions, lambda it: it.owned.pop()),
    "an owned version does not exist": (rules.owns_its_definitions, lambda it: owned(it).update(version="v9")),
    "a hidden kind is not owned": (
        rules.owns_its_definitions,
        lambda it: it.csv["metadata"]["annotations"].update(
            {"operators.operatorframework.io/internal-objects": '["others.example.com"]'}
        ),
    ),
    "a descriptor leads nowhere": (
        rules.describes_fields_that_exist,
        lambda it: owned(it)["specDescriptors"][0].update(path="size"),
    ),
    "a field has no descriptor": (
        rules.describes_fields_that_exist,
        lambda it: owned(it)["specDescriptors"].pop(),
    ),
    "a kind has no example": (
        rules.has_an_example_of_each_kind,
        lambda it: with_examples(it, lambda examples: examples.pop()),
    ),
    "an example is not valid": (
        rules.has_an_example_of_each_kind,
        lambda it: with_examples(it, lambda examples: examples[0]["spec"].update(replicas=-1)),
    ),
    "an example names a namespace": (
        rules.has_an_example_of_each_kind,
        lambda it: with_examples(it, lambda examples: examples[0]["metadata"].update(namespace="default")),
    ),
    "the icon has another media type": (
        rules.has_an_icon,
        lambda it: it.csv["spec"]["icon"][0].update(mediatype="image/png"),
    ),
    "the icon is not base64": (rules.has_an_icon, lambda it: it.csv["spec"]["icon"][0].update(base64data="<svg/>")),
    "an install mode is missing": (rules.has_install_modes, lambda it: it.csv["spec"]["installModes"].pop()),
    "no install mode is supported": (
        rules.has_install_modes,
        lambda it: [each.update(supported=False) for each in it.csv["spec"]["installModes"]],
    ),
    "a link is no address": (
        rules.speaks_to_people,
        lambda it: it.csv["spec"]["links"][0].update(url="docs/index.md"),
    ),
    "the capability is unknown": (
        rules.speaks_to_people,
        lambda it: it.csv["metadata"]["annotations"].update(capabilities="Everything"),
    ),
    "a category is unknown": (
        rules.speaks_to_people,
        lambda it: it.csv["metadata"]["annotations"].update(categories="Developer Tools, Toys"),
    ),
    "a permission is a wildcard": (rules.grants_nothing_dangerous, lambda it: rule_of(it).update(verbs=["*"])),
    "a permission is to create CRDs": (
        rules.grants_nothing_dangerous,
        lambda it: rule_of(it).update(apiGroups=["apiextensions.k8s.io"]),
    ),
    "an object has a namespace": (
        rules.grants_nothing_dangerous,
        lambda it: it.others[-1]["metadata"].update(namespace="rolecall-system"),
    ),
    "a service account is in the manifests": (
        rules.grants_nothing_dangerous,
        lambda it: it.others.append({"kind": "ServiceAccount", "metadata": {"name": "rolecall"}}),
    ),
    "an image differs": (rules.runs_one_image, lambda it: container(it).update(image="example.com/other:1")),
    "a container requests nothing": (rules.runs_one_image, lambda it: container(it).pop("resources")),
    "the pods run as somebody else": (
        rules.runs_one_image,
        lambda it: it.csv["spec"]["install"]["spec"]["clusterPermissions"][0].update(serviceAccountName="other"),
    ),
    "an annotation is missing": (
        rules.is_found_by_its_annotations,
        lambda it: it.annotations.pop(PREFIX + "bundle.manifests.v1"),
    ),
    "the default channel is none": (
        rules.is_found_by_its_annotations,
        lambda it: it.annotations.update({PREFIX + "bundle.channel.default.v1": "stable"}),
    ),
    "a channel has a name of its own": (
        rules.is_found_by_its_annotations,
        lambda it: it.annotations.update({PREFIX + "bundle.channels.v1": "candidate,alpha"}),
    ),
    "a label differs": (
        rules.is_found_by_its_annotations,
        lambda it: it.labels.update({PREFIX + "bundle.package.v1": "other"}),
    ),
    "a scorecard test has no labels": (
        rules.can_be_scored,
        lambda it: it.scorecard["stages"][0]["tests"][0].pop("labels"),
    ),
    "it is too large": (rules.fits_into_a_config_map, lambda it: setattr(it, "size_bytes", 1 << 21)),
}


@pytest.mark.parametrize(("rule", "broken"), BREAKS.values(), ids=BREAKS)
def test_rule_finds_violations(rule: Callable[[Bundle], Any], broken: Break) -> None:
    bundle = deepcopy(BUNDLE)
    broken(bundle)
    assert list(rule(bundle))


def test_every_rule_is_violated_once() -> None:
    assert {rule for rule, _ in BREAKS.values()} == set(rules.RULES)
