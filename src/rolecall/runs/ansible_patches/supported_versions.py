"""The minor versions of ansible-core for which the patches of this package are tested.

The patches replace private functions of ansible-core, which may change in any minor version. They are only used with
the versions in ``SUPPORTED``: those that ``uv.lock`` pins, which ``make test-matrix`` runs the tests on. With any other
version each run starts in a new interpreter, where nothing is patched. Add a version here when the lock file has it and
the tests pass. Nothing in this module imports Ansible.
"""

from importlib.metadata import version

SUPPORTED = ("2.19", "2.21")
"""Minor versions of ansible-core, in ascending order."""


def installed_version() -> str:
    """Return the full version of the ansible-core that runs use."""
    return version("ansible-core")


def is_supported(full_version: str) -> bool:
    """Return whether the patches are tested for this version of ansible-core."""
    return ".".join(full_version.split(".")[:2]) in SUPPORTED
