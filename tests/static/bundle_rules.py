"""The rules that a bundle must keep so that OLM takes it, written from what OLM's validation rejects or warns of.

A rule yields a sentence for each thing that breaks it.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import jsonschema  # type: ignore[import-untyped]

from tests.static.bundle import PREFIX, Bundle, Document
from tests.static.bundle_shape import SCORECARD, SERVICE_VERSION

SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
LONGEST_LABEL = 63
LARGEST_BUNDLE_BYTES = 1 << 20
MODES = {"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"}
CAPABILITIES = {"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}
CATEGORIES = {
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
}
CHANNELS = ("candidate", "fast", "stable")
KINDS = {"ClusterServiceVersion", "CustomResourceDefinition", "NetworkPolicy", "PodDisruptionBudget", "Service"}


def has_its_shape(bundle: Bundle) -> Iterator[str]:
    """Every required field exists, no field is unknown, and each has its type."""
    for error in jsonschema.Draft202012Validator(SERVICE_VERSION).iter_errors(bundle.csv):
        yield f"{error.json_path}: {error.message}"


def is_named_after_its_version(bundle: Bundle) -> Iterator[str]:
    """Name and versions: package.vVERSION, a DNS name that fits into a label; versions are semantic."""
    name, spec = bundle.csv["metadata"]["name"], bundle.csv["spec"]
    if name != f"{bundle.annotations[PREFIX + 'bundle.package.v1']}.v{spec['version']}":
        yield f"the name {name!r} is not made of the package and version {spec['version']!r}"
    if not DNS_NAME.fullmatch(name) or len(name) > LONGEST_LABEL:
        yield f"the name {name!r} cannot be a label"
    for field in ("version", "minKubeVersion"):
        if not SEMVER.fullmatch(spec[field]):
            yield f"{field} {spec[field]!r} is no semantic version"


def owns_its_definitions(bundle: Bundle) -> Iterator[str]:
    """Each CRD of the manifests is owned once, by the same name, kind and version, and all hidden ones are owned."""
    defined = sorted(
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], version["name"])
        for crd in bundle.crds
        for version in crd["spec"]["versions"]
    )
    owned = sorted((each["name"], each["kind"], each["version"]) for each in bundle.owned)
    if defined != owned:
        yield f"owned are {owned}, but the manifests define {defined}"
    key = "operators.operatorframework.io/internal-objects"
    hidden = set(json.loads(bundle.csv["metadata"]["annotations"][key]))
    if not hidden <= {each["name"] for each in bundle.owned}:
        yield f"internal objects {sorted(hidden)} are not all owned"


def describes_fields_that_exist(bundle: Bundle) -> Iterator[str]:
    """Each descriptor leads to a field of the CRD, and each field of a spec has one."""
    for each in bundle.owned:
        for crd in bundle.crds:
            if crd["metadata"]["name"] == each["name"]:
                yield from _descriptors(each, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])


def _descriptors(owned: Document, properties: Document) -> Iterator[str]:
    for part in ("spec", "status"):
        fields = set(properties.get(part, {}).get("properties", {}))
        described = [each["path"] for each in owned[f"{part}Descriptors"]]
        if not set(described) <= fields or len(set(described)) != len(described):
            yield f"{owned['kind']}: the {part} has no such fields, or has them once: {described}"
        if part == "spec" and fields - set(described):
            yield f"{owned['kind']}: fields without a descriptor: {sorted(fields - set(described))}"


def has_an_example_of_each_kind(bundle: Bundle) -> Iterator[str]:
    """Each owned kind has an example that its schema accepts; no example has another kind or a namespace."""
    schemas = {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): version["schema"]
        for crd in bundle.crds
        for version in crd["spec"]["versions"]
    }
    shown = {(each["apiVersion"], each["kind"]) for each in bundle.examples}
    if shown != set(schemas):
        yield f"examples are of {sorted(shown)}, but owned are {sorted(schemas)}"
    for example in bundle.examples:
        schema = schemas.get((example["apiVersion"], example["kind"]), {"openAPIV3Schema": {}})["openAPIV3Schema"]
        for error in jsonschema.Draft202012Validator(schema).iter_errors(example):
            yield f"the example of {example['kind']}: {error.message}"
        if "namespace" in example["metadata"]:
            yield f"the example of {example['kind']} names a namespace, which a console chooses"


def has_an_icon(bundle: Bundle) -> Iterator[str]:
    """Each icon has the format of its media type."""
    for icon in bundle.csv["spec"]["icon"]:
        try:
            root = ET.fromstring(base64.b64decode(icon["base64data"], validate=True))  # noqa: S314 - our own file
        except (binascii.Error, ET.ParseError) as error:
            yield f"the icon cannot be read: {error}"
        else:
            if (icon["mediatype"], root.tag) != ("image/svg+xml", "{http://www.w3.org/2000/svg}svg"):
                yield f"the icon is {root.tag} and is called {icon['mediatype']!r}"


def has_install_modes(bundle: Bundle) -> Iterator[str]:
    """Every mode exists once, and one is supported."""
    modes = bundle.csv["spec"]["installModes"]
    if sorted(each["type"] for each in modes) != sorted(MODES):
        yield f"install modes must be {sorted(MODES)}, each once"
    if not any(each["supported"] for each in modes):
        yield "no install mode is supported"


def speaks_to_people(bundle: Bundle) -> Iterator[str]:
    """Links are addresses; the level of capability and the categories are known ones."""
    for link in bundle.csv["spec"]["links"]:
        if urlsplit(link["url"]).scheme != "https" or not urlsplit(link["url"]).hostname:
            yield f"{link['url']!r} is no address"
    level = bundle.csv["metadata"]["annotations"].get("capabilities")
    if level not in CAPABILITIES:
        yield f"capabilities {level!r} must be one of {sorted(CAPABILITIES)}"
    for category in bundle.csv["metadata"]["annotations"].get("categories", "").split(","):
        if category.strip() not in CATEGORIES:
            yield f"category {category!r} must be one of {sorted(CATEGORIES)}"


def grants_nothing_dangerous(bundle: Bundle) -> Iterator[str]:
    """No wildcard, no CRDs, no roles except for users of the kinds, and no ServiceAccount next to that of OLM."""
    strategy = bundle.csv["spec"]["install"]["spec"]
    for permission in strategy["clusterPermissions"] + strategy["permissions"]:
        for rule in permission["rules"]:
            if "*" in rule["apiGroups"] + rule["resources"] + rule["verbs"]:
                yield f"a wildcard in {rule}"
            if {"apiextensions.k8s.io", "rbac.authorization.k8s.io"} & set(rule["apiGroups"]):
                yield f"definitions and roles are OLM's to manage: {rule}"
    groups = {crd["spec"]["group"] for crd in bundle.crds}
    for other in bundle.others:
        if other["kind"] == "ClusterRole":
            if any(not groups.issuperset(rule["apiGroups"]) for rule in other["rules"]):
                yield f"{other['metadata']['name']} grants users kinds that aren't those of the bundle"
        elif other["kind"] not in KINDS or "namespace" in other["metadata"]:
            yield f"{other['kind']} {other['metadata']['name']!r} must not be in the manifests, or name no namespace"


def runs_one_image(bundle: Bundle) -> Iterator[str]:
    """One image, wherever it is named; the pods have an account with permissions and request CPU and memory."""
    spec = bundle.csv["spec"]
    images = {
        bundle.csv["metadata"]["annotations"]["containerImage"],
        *(each["image"] for each in spec["relatedImages"]),
    }
    accounts = {each["serviceAccountName"] for each in spec["install"]["spec"]["clusterPermissions"]}
    for deployment in spec["install"]["spec"]["deployments"]:
        pod = deployment["spec"]["template"]["spec"]
        if pod["serviceAccountName"] not in accounts:
            yield f"the pods run as {pod['serviceAccountName']!r}, which has no permissions"
        for container in pod["containers"]:
            images.add(container["image"])
            if not {"cpu", "memory"} <= set(container.get("resources", {}).get("requests", {})):
                yield f"container {container['name']!r} requests no resources"
    if len(images) != 1:
        yield f"there are several images: {sorted(images)}"


def is_found_by_its_annotations(bundle: Bundle) -> Iterator[str]:
    """Annotations name the directories, the package and a channel of a known kind; the image has them as labels."""
    directories = {
        "bundle.mediatype.v1": "registry+v1",
        "bundle.manifests.v1": "manifests/",
        "bundle.metadata.v1": "metadata/",
        "test.mediatype.v1": "scorecard+v1",
        "test.config.v1": "tests/scorecard/",
    }
    for name, value in directories.items():
        if bundle.annotations.get(PREFIX + name) != value:
            yield f"annotation {name} must be {value!r}"
    channels = bundle.annotations[PREFIX + "bundle.channels.v1"].split(",")
    if bundle.annotations[PREFIX + "bundle.channel.default.v1"] not in channels:
        yield "the default channel is none of the channels"
    if not all(each.startswith(CHANNELS) for each in channels):
        yield f"channels {channels} must begin with one of {CHANNELS}"
    if bundle.annotations != bundle.labels:
        yield "the labels of the Dockerfile are not the annotations"


def can_be_scored(bundle: Bundle) -> Iterator[str]:
    """Each test of the scorecard has an image, a command and labels to select it by."""
    for error in jsonschema.Draft202012Validator(SCORECARD).iter_errors(bundle.scorecard):
        yield f"scorecard {error.json_path}: {error.message}"


def fits_into_a_config_map(bundle: Bundle) -> Iterator[str]:
    """OLM keeps an unpacked bundle in a ConfigMap."""
    if bundle.size_bytes > LARGEST_BUNDLE_BYTES:
        yield f"{bundle.size_bytes} bytes are more than {LARGEST_BUNDLE_BYTES}"


def has_unique_names(bundle: Bundle) -> Iterator[str]:
    """OLM v1: no two objects of a kind have the same name, and the names of Deployments are DNS names."""
    deployments = [each["name"] for each in bundle.csv["spec"]["install"]["spec"]["deployments"]]
    names = [("Deployment", name) for name in deployments]
    names += [(each["kind"], each["metadata"]["name"]) for each in bundle.others]
    for kind, name in sorted({each for each in names if names.count(each) > 1}):
        yield f"{kind} {name!r} exists twice"
    yield from (f"Deployment {name!r} is no DNS name" for name in deployments if not DNS_NAME.fullmatch(name))


def installs_without_configuration(bundle: Bundle) -> Iterator[str]:
    """OLM v1: AllNamespaces is supported, and with OwnNamespace and SingleNamespace, watchNamespace can be any one."""
    supported = {each["type"] for each in bundle.csv["spec"]["installModes"] if each["supported"]}
    for mode in sorted({"AllNamespaces", "OwnNamespace", "SingleNamespace"} - supported):
        yield f"{mode} isn't supported"


def depends_on_nothing(bundle: Bundle) -> Iterator[str]:
    """OLM v1 resolves no dependencies and serves no aggregated APIs."""
    spec, annotations = bundle.csv["spec"], bundle.csv["metadata"]["annotations"]
    if "apiservicedefinitions" in spec or spec["customresourcedefinitions"].keys() != {"owned"}:
        yield "the bundle requires or serves other APIs"
    for name in ("olm.gvk.required", "olm.package.required", "olm.constraint"):
        if name in annotations.get("olm.properties", ""):
            yield f"the property {name} is a dependency"


RULES_OF_V1: tuple[Callable[[Bundle], Iterator[str]], ...] = (
    has_unique_names,
    installs_without_configuration,
    depends_on_nothing,
)
RULES: tuple[Callable[[Bundle], Iterator[str]], ...] = (
    has_its_shape,
    is_named_after_its_version,
    owns_its_definitions,
    describes_fields_that_exist,
    has_an_example_of_each_kind,
    has_an_icon,
    has_install_modes,
    speaks_to_people,
    grants_nothing_dangerous,
    runs_one_image,
    is_found_by_its_annotations,
    can_be_scored,
    fits_into_a_config_map,
    *RULES_OF_V1,
)
