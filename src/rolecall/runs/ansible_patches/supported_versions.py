"""The minor versions of ansible-core for which the patches of this package are tested.

The patches replace private functions of ansible-core, which may change in any minor version. They are only used with
the versions in ``SUPPORTED``: those that ``uv.lock`` pins, which ``make test-matrix`` runs the tests on. With any other
version each run starts in a new interpreter, where nothing is patched. Add a version here when the lock file has it and
the tests pass. Nothing in this module imports Ansible. The same holds for kubernetes.core and the Kubernetes client,
but for these a version that is not supported only leaves its own classes as they are.
"""

import json
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

SUPPORTED = ("2.19", "2.21")
"""Minor versions of ansible-core, in ascending order."""

KUBERNETES_CORE = ("6.2", "6.6")
"""Minor versions of the collection kubernetes.core."""

KUBERNETES_CLIENT = "37"
"""The major version of the Kubernetes client."""

_COLLECTION_DEPTH = 3
"""How many directories of the collection are above a file in ``plugins/module_utils/client``."""


def installed_version() -> str:
    """Return the full version of the ansible-core that runs use."""
    return version("ansible-core")


def is_supported(full_version: str) -> bool:
    """Return whether the patches are tested for this version of ansible-core."""
    return ".".join(full_version.split(".")[:2]) in SUPPORTED


def is_supported_collection(file: str) -> bool:
    """Return whether the patches are tested for the kubernetes.core with this file, and for the Kubernetes client."""
    manifest = Path(file).parents[_COLLECTION_DEPTH] / "MANIFEST.json"
    with suppress(OSError, ValueError, LookupError, TypeError):
        found = str(json.loads(manifest.read_bytes())["collection_info"]["version"])
        minor = ".".join(found.split(".")[:2])
        return minor in KUBERNETES_CORE and version("kubernetes").split(".")[0] == KUBERNETES_CLIENT
    return False
