"""The committed bundle, read for the tests."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.workbench.controlplane.binaries import find_binaries

Document = dict[str, Any]
PREFIX = "operators.operatorframework.io."


@dataclass
class Bundle:
    """A bundle as it lies in its directory and in the labels of its Dockerfile."""

    csv: Document
    others: list[Document]
    annotations: Document
    labels: dict[str, str]
    scorecard: Document
    size_bytes: int

    @property
    def crds(self) -> list[Document]:
        """The CRDs among the manifests."""
        return [each for each in self.others if each["kind"] == "CustomResourceDefinition"]

    @property
    def owned(self) -> list[Document]:
        """The entry of each CRD in the ClusterServiceVersion."""
        found: list[Document] = self.csv["spec"]["customresourcedefinitions"]["owned"]
        return found

    @property
    def examples(self) -> list[Document]:
        """The examples that a console offers."""
        found: list[Document] = json.loads(self.csv["metadata"]["annotations"]["alm-examples"])
        return found


def kustomized(deploy: Path) -> str:
    """Return the objects that ``kubectl apply -k`` would create, as YAML."""
    command = [str(find_binaries(print)["kubectl"]), "kustomize", str(deploy)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_bundle(directory: Path) -> Bundle:
    """Read bundle/ and bundle.Dockerfile in a directory."""
    manifests = [yaml.safe_load(path.read_text()) for path in sorted(directory.glob("bundle/manifests/*"))]
    (csv,) = [each for each in manifests if each["kind"] == "ClusterServiceVersion"]
    dockerfile = (directory / "bundle.Dockerfile").read_text()
    return Bundle(
        csv=csv,
        others=[each for each in manifests if each is not csv],
        annotations=yaml.safe_load((directory / "bundle/metadata/annotations.yaml").read_text())["annotations"],
        labels=dict(re.findall(r"^LABEL ([^=\s]+)=(\S+)$", dockerfile, re.MULTILINE)),
        scorecard=yaml.safe_load((directory / "bundle/tests/scorecard/config.yaml").read_text()),
        size_bytes=sum(path.stat().st_size for path in directory.glob("bundle/**/*") if path.is_file()),
    )
