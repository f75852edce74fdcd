"""Print the functions of Ansible that the patches replace, as ``module:qualified.name``, for ``test_patches.py``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery, encode
from rolecall.runner.warm.ansible_patches import reset_state
from rolecall.runner.warm.ansible_patches.patches import installed_patches, names_in_use
from rolecall.runner.warm.playbook_process import ForkContext, apply_patches
from rolecall.runner.warm.preload import preload

_STATE = ("ansible.constants:", "ansible.utils.color:", "ansible.utils.display:Display._")
"""Values that each run sets: these aren't functions."""

_NAMES = (str, list, set, type(None))
"""Types of the values that the loader of plugins sets on a class that it returns."""


def main() -> None:
    """Install all patches that the server installs, and print the differences."""
    statuses, preparations = preload([], installed_patches())
    before = dict(_attributes())
    discovery = RunDiscovery(DiscoveryImage.decode(encode({}, {})), os.memfd_create("changed"))
    context = ForkContext(
        server_environment={},
        titles=cast("Any", None),
        add_note=lambda _note: None,
        note_descriptor=0,
        event_descriptor=0,
        patches=names_in_use(statuses),
        preparations=preparations,
        discovery=discovery,
    )
    reset_state.reset_for_run({}, 0)
    apply_patches(context)
    after = dict(_attributes())
    for name in sorted(after):
        is_function = not (name.startswith(_STATE) or isinstance(after[name], _NAMES))
        if is_function and before.get(name) is not after[name]:
            sys.stdout.write(f"{name}\n")


def _attributes() -> Iterator[tuple[str, object]]:
    """Yield the attributes of all modules of Ansible and of the classes that are defined there."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("ansible.", "ansible_collections.kubernetes.")) and isinstance(module, ModuleType):
            for own, value in list(vars(module).items()):
                if not own.startswith("__"):
                    yield f"{name}:{own}", value
                if isinstance(value, type) and value.__module__ == name:
                    for inner, part in list(vars(value).items()):
                        if not inner.startswith("__"):
                            yield f"{name}:{own}.{inner}", part


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    main()
