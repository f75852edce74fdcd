"""The texts of the bundle's files, by their path below deploy/olm."""

from pathlib import Path
from typing import Any

import yaml
from tools.bundle.deployed import Deployed, Document, read_deployed
from tools.bundle.service_version import Release, service_version

HEADER = '# Written by "make bundle" from deploy/: change it there.\n'
PACKAGE = "rolecall"
CHANNEL = "candidate"
SCORECARD_IMAGE = "quay.io/operator-framework/scorecard-test:v1.42.3"
LONGEST_LINE = 80
SCORECARD_TESTS = {
    "basic-check-spec": "basic",
    "olm-bundle-validation": "olm",
    "olm-crds-have-validation": "olm",
    "olm-crds-have-resources": "olm",
    "olm-spec-descriptors": "olm",
    "olm-status-descriptors": "olm",
}
ANNOTATIONS = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": PACKAGE,
    "operators.operatorframework.io.bundle.channels.v1": CHANNEL,
    "operators.operatorframework.io.bundle.channel.default.v1": CHANNEL,
    "operators.operatorframework.io.test.mediatype.v1": "scorecard+v1",
    "operators.operatorframework.io.test.config.v1": "tests/scorecard/",
}


def bundle_files(deploy: Path, release: Release) -> dict[str, str]:
    """Return the text of every file of the bundle for the directory deploy/. Raise BundleError if it is invalid."""
    deployed = read_deployed(deploy)
    version = service_version(deployed, deploy / "olm", release)
    return {
        "bundle.Dockerfile": _dockerfile(),
        f"bundle/manifests/{PACKAGE}.clusterserviceversion.yaml": _yaml(version),
        **_definitions(deployed),
        **_services(deployed),
        "bundle/metadata/annotations.yaml": _yaml({"annotations": ANNOTATIONS}),
        "bundle/tests/scorecard/config.yaml": _yaml(_scorecard()),
    }


def _definitions(deployed: Deployed) -> dict[str, str]:
    return {f"bundle/manifests/{name}.crd.yaml": path.read_text() for name, (path, _) in deployed.definitions().items()}


def _services(deployed: Deployed) -> dict[str, str]:
    """Return the Services; OLM creates them in the namespace of the operator."""
    found = {}
    for service in deployed.of_kind("Service"):
        metadata = {key: value for key, value in service["metadata"].items() if key != "namespace"}
        found[f"bundle/manifests/{metadata['name']}.service.yaml"] = _yaml({**service, "metadata": metadata})
    return found


def _dockerfile() -> str:
    labels = "".join(f"LABEL {name}={value}\n" for name, value in ANNOTATIONS.items())
    folders = ("manifests", "metadata", "tests/scorecard")
    copies = "".join(f"COPY bundle/{folder} /{folder}/\n" for folder in folders)
    return f"{HEADER}FROM scratch\n\n{labels}\n{copies}"


def _scorecard() -> Document:
    tests = [
        {
            "image": SCORECARD_IMAGE,
            "entrypoint": ["scorecard-test", name],
            "labels": {"suite": suite, "test": f"{name}-test"},
        }
        for name, suite in SCORECARD_TESTS.items()
    ]
    return {
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
    }


class _Dumper(yaml.SafeDumper):
    """A dumper whose output yamllint accepts: indented lists, and long texts as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the base's signature
        """Indent lists below their key."""
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base's signature
        """Disable aliases."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else ">" if len(text) > LONGEST_LINE else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: Document) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{HEADER}{text}"
