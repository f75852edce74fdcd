"""Every variable by which an installed plugin takes an option is reserved, so that a spec cannot set it."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rolecall.runner.runs.variables import is_reserved

DOCUMENTATION = re.compile(r'^\s*(?!EXAMPLE|RETURN)[A-Z_]+\s*=\s*r?("""|\'\'\')(.*?)\1', re.DOTALL | re.MULTILINE)
"""DOCUMENTATION, and the parts of it that plugins share as attributes of classes in ``doc_fragments``."""
VARIABLES = re.compile(r"^( +)vars:[ \t]*\n((?:\1 +.*\n?)+)", re.MULTILINE)
NAME = re.compile(r"name:\s*[\"']?(\w+)")
HARMLESS = {"delegated_vars"}
"""The name of a fact that a plugin sets, and reads from nowhere else."""


def plugin_files() -> Iterator[Path]:
    for package, below in (("ansible", "plugins"), ("ansible_collections", "")):
        spec = find_spec(package)
        assert spec
        assert spec.submodule_search_locations
        for place in spec.submodule_search_locations:
            for path in Path(place, below).rglob("*.py"):
                parts = path.relative_to(place).parts
                if ("plugins" in (below, *parts)) and not {"modules", "module_utils", "tests"} & set(parts):
                    yield path


def option_variables() -> set[str]:
    found: set[str] = set()
    for path in plugin_files():
        for _, documentation in DOCUMENTATION.findall(path.read_text(errors="replace")):
            for _, block in VARIABLES.findall(documentation):
                found.update(NAME.findall(block))
    return found


def test_options_that_plugins_take_from_variables_are_reserved() -> None:
    variables = option_variables()
    assert {"ansible_remote_tmp", "ansible_ssh_executable", "passwordstore"} <= variables
    assert sorted(name for name in variables - HARMLESS if not is_reserved(name)) == []
