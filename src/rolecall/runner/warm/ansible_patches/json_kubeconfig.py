"""The Kubernetes client reads the kubeconfig of a run as the JSON that it is.

JSON is YAML, which the client parses with PyYAML's loader in Python: that takes an eighth of the time of a module. Only
the file that the operator has written for the run is read as JSON; of any other file, YAML decides what it means.
"""

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TextIO

from kubernetes.config import kube_config


def install() -> None:
    """Read the kubeconfig in the environment of this process as JSON, here and in forked processes."""
    path, original = os.environ.get("KUBECONFIG", ""), kube_config.yaml
    kube_config.yaml = SimpleNamespace(
        safe_load=lambda stream: _loaded(stream, path, original.safe_load), safe_dump=original.safe_dump
    )


def _loaded(stream: str | TextIO, path: str, load: Callable[[Any], Any]) -> Any:
    if isinstance(stream, str) or getattr(stream, "name", None) != path:
        return load(stream)
    text = stream.read()
    try:
        return json.loads(text)
    except ValueError:
        return load(text)
