"""Loads the filter plugins of the roles, which Ansible finds by their place and which are in no package."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROLES = Path(__file__).parents[3] / "roles"


def load_filters(role: str) -> ModuleType:
    """Return the module with the filters of a role."""
    path = ROLES / role / "filter_plugins" / f"{role}.py"
    spec = importlib.util.spec_from_file_location(f"filters_of_{role}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
