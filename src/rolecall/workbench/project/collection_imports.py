"""Imports the modules and action plugins of collections that tasks use, with the Python that would run them.

A collection can be installed and still fail in every task: an old release needs ``distutils``, which Python 3.12
removed, or a Python package that isn't installed. The imports happen in a forked process, because a module can end it,
or change what the next one finds.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ansible.plugins.loader import action_loader, module_loader

_TIMEOUT_SECONDS = 60
_COLLECTIONS = "ansible_collections"
IN_PACKAGE: Final = frozenset(Path(__file__).with_name("ansible_package.txt").read_text(encoding="utf-8").split())
"""The collections of the Python package ``ansible`` (release 12), for advice only."""


def check_imports(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each module, by its full name, that can't be imported, with a message."""
    wanted = {
        name: [each for loader in (action_loader, module_loader) if (each := _find(loader, name))] for name in names
    }
    errors = _import_all(sorted({each for found in wanted.values() for each in found}))
    version = ".".join(map(str, sys.version_info[:2]))
    for name, found in wanted.items():
        if error := next((errors[each] for each in found if each in errors), ""):
            collection = ".".join(found[0].split(".")[1:3])
            message = f"{name} can't be imported with Python {version}: {error}. Install a release of the collection "
            yield name, f"{message}{collection} for this Python, or the missing package"


def _find(loader: Any, name: str) -> str:
    """Return the importable name of a plugin of a collection, an empty string if it isn't one in Python."""
    with suppress(Exception):  # the load of the task reports what Ansible doesn't find
        path = Path(loader.find_plugin_with_context(name).plugin_resolved_path or "")
        parts = path.parts
        if path.suffix == ".py" and _COLLECTIONS in parts:
            start = len(parts) - 1 - parts[::-1].index(_COLLECTIONS)
            return ".".join((*parts[start:-1], path.stem))
    return ""


def _import_all(names: list[str]) -> dict[str, str]:
    """Return the error of each of these modules that can't be imported."""
    if not names:
        return {}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_TIMEOUT_SECONDS)
        for name in names:
            if error := _import(name):
                os.write(writing, f"{json.dumps([name, error])}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as lines:
        errors = dict(json.loads(line) for line in lines)
    os.waitpid(child, 0)
    return errors


def _import(name: str) -> str:
    """Return why a module can't be imported, an empty string if it can."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module can raise anything
        # Some modules run when they are imported, and end because they have no arguments.
        return "" if isinstance(error, SystemExit) else " ".join(f"{type(error).__name__}: {error}".split())
    return ""
