"""Imports for a process that starts sooner: without parts of libraries that it never uses, and without collections.

Each block changes only the imports in it. Afterward, other code can import the package as usual.
"""

import gc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(package: str) -> Iterator[None]:
    """Make ``import package`` raise ImportError in the block, for libraries that use the package only if it exists."""
    imported = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment]  # None blocks an import, see "The import system"
    try:
        yield
    finally:
        del sys.modules[package]
        if imported is not None:
            sys.modules[package] = imported


@contextmanager
def submodules_only(package: str) -> Iterator[None]:
    """Import submodules of ``package`` in the block without running the package's ``__init__``, which imports others.

    Has no effect if the package is imported already. Raises ImportError if it isn't installed.
    """
    if package in sys.modules:
        yield
        return
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[package]


def collect_rarely() -> None:
    """Make garbage collections rare from now on, in programs that end soon and leave little garbage."""
    gc.set_threshold(20_000, 50, 100)


@contextmanager
def without_collections() -> Iterator[None]:
    """Import in the block without garbage collections, and exclude all objects at its end from later collections.

    Imports leave almost no garbage, but the objects that they allocate cause collections, which take a tenth of the CPU
    time of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
