"""Objects of the fork server that runs read without copying the memory pages in which they are.

Each process of a run is forked from the server and shares its memory, page by page, until it writes. CPython writes to
every object that it touches: it counts references. Since 3.12 an object can be immortal, so that its count is never
written (PEP 683, which names forked servers as its reason). There is no public call for that, so ``share_objects``
writes the count of every object by its address, in the tested versions only, and verifies it first. The server's
objects live as long as the server in any case. A run can't change them: what it writes is its own copy.

Each process would also write what CPython computes on first use, so the server does it once: the hashes of strings, and
the versions of types and of the variables of modules. Last, the free blocks between the server's objects are taken, so
that the new objects of a process are in pages of their own.

``CodeInUse`` does the same for bytecode, to which CPython 3.13 writes whenever it runs it, for example at each
conditional jump. The functions that runs use are a few among many, so nearly every page with code would be copied. The
first runs report which functions they have used, and the server gives these functions copies of their code that are
next to each other.
"""

import ctypes
import gc
import mmap
import opcode
import os
import platform
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, Self

VERSIONS: Final = ((3, 12), (3, 13))
"""The tested versions of CPython: their objects start with the count, and ``IMMORTAL`` is that of immortal ones."""

IMMORTAL: Final = 0xFFFFFFFF
"""``_Py_IMMORTAL_REFCNT`` in CPython's ``Include/object.h``."""

_IMMORTAL_BIT: Final = 1 << 31
_count_of = ctypes.c_ssize_t.from_address

_SIZE_CLASS: Final = re.compile(r"^\s*\d+\s+(\d+)\s+\d+\s+\d+\s+(\d+)$", re.MULTILINE)
"""The size of the blocks of a size class, and how many are free, in the statistics of CPython's allocator."""

_BYTES_OVERHEAD: Final = sys.getsizeof(b"")
_HAS_RUN: Final[Any] = getattr(opcode, "_specialized_opmap", {}).get("RESUME_CHECK")
"""The instruction with which CPython replaces the first one of a function that runs; None before 3.13."""

_READS: Final = 8
"""More than CPython's adaptive interpreter needs."""

_WORTHWHILE: Final = 64
"""The least number of functions that get copies of their code."""


def reason_not_to_share() -> str:
    """Return why the objects of this interpreter can't be made immortal, an empty string if they can."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.implementation.name != "cpython" or sys.version_info[:2] < VERSIONS[0]:
        return f"{version} has no immortal objects"
    if sys.version_info[:2] not in VERSIONS:
        return f"not tested with {version}"
    is_unusual = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) or hasattr(sys, "gettotalrefcount")
    return "this build of Python counts references differently" if is_unusual or sys.maxsize < 1 << 32 else ""


def share_objects() -> None:
    """Make all objects of this process immortal, and write what each forked process would write.

    Raises RuntimeError, with nothing changed, if an immortal object of this interpreter isn't as expected.
    """
    probe = object()
    _count_of(id(probe)).value = IMMORTAL
    references = [probe] * 3
    del references[1:]
    if sys.getrefcount(probe) != IMMORTAL:
        raise RuntimeError(f"the count of an immortal object is {sys.getrefcount(probe)}, expected {IMMORTAL}")
    for module in list(sys.modules.values()):
        if isinstance(variables := getattr(module, "__dict__", None), dict):  # a module may be any object
            _use_globals(variables)
    _share(each for each in gc.get_objects() if not isinstance(each, FrameType))


def _share(roots: Iterable[Any]) -> None:
    """Make objects immortal, with all that only they can reach: the garbage collector doesn't know all objects."""
    for root in roots:
        unvisited, is_root = [root], True
        while unvisited:
            each = unvisited.pop()
            count = _count_of(id(each))
            if count.value & _IMMORTAL_BIT and not is_root:
                continue
            count.value = IMMORTAL
            if isinstance(each, CodeType):
                unvisited.extend((each.co_consts, each.co_names, each.co_linetable, each.co_exceptiontable))
            elif type(each) is not str and (is_root or not gc.is_tracked(each)):  # most are strings
                unvisited.extend(gc.get_referents(each))
            if isinstance(each, str):
                hash(each)
            elif isinstance(each, type):
                with suppress(Exception):  # a metaclass may do anything
                    getattr(each, "__init__", None)  # the first lookup gives the type its version
            is_root = False


def _use_globals(variables: dict[str, Any]) -> None:
    """Give the variables of a module their version, as CPython does when a function reads them a second time."""

    def read() -> object:
        return __name__

    function = FunctionType(read.__code__.replace(), variables)
    for _ in range(_READS):
        function()


def take_free_blocks() -> None:
    """Allocate the free blocks of CPython's allocator for small objects, for as long as this process lives."""
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()  # noqa: SLF001 - in the documentation of sys; it writes to the descriptor
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        statistics = file.read().decode(errors="replace")
    taken: list[object] = []
    for size, free in _SIZE_CLASS.findall(statistics):
        length = int(size) - _BYTES_OVERHEAD
        taken.extend(bytes(length) if length > 1 else object() for _ in range(int(free)))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))


@dataclass(slots=True)
class CodeInUse:
    """Which functions of the server its runs use, in memory that all of their processes share."""

    functions: list[FunctionType]
    before: dict[int, bytes]
    """The bytecode of functions that have run in the server, by their position in ``functions``."""

    is_used: mmap.mmap
    """A byte for each function."""

    copied: set[int] = field(default_factory=set)

    @classmethod
    def find(cls) -> Self | None:
        """Return all functions of this process; None if this version of CPython doesn't write to their code."""
        if _HAS_RUN is None:
            return None
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        before = {number: code for number, function in enumerate(functions) if (code := _code_that_has_run(function))}
        return cls(functions, before, mmap.mmap(-1, len(functions)))

    def report(self) -> None:
        """Report which functions this process, and those that it was forked from, have used since ``find``."""
        for number, function in enumerate(self.functions):
            if not self.is_used[number] and (code := _code_that_has_run(function)):
                self.is_used[number] = code != self.before.get(number)

    def bring_together(self) -> None:
        """Give the functions that were reported since the last call copies of their code, which are equal.

        Processes forked from now on run the copies.
        """
        new = [number for number in range(len(self.functions)) if self.is_used[number] and number not in self.copied]
        if len(new) < _WORTHWHILE:
            return
        copies = {id(code): _copy(code) for code in (self.functions[number].__code__ for number in new)}
        for function in (self.functions[number] for number in new):
            function.__code__ = copies[id(function.__code__)]
        self.copied.update(new)
        _share(copies.values())
        gc.freeze()


def _code_that_has_run(function: FunctionType) -> bytes:
    """Return the bytecode of a function as CPython has changed it, empty if the function has never run."""
    code: bytes = function.__code__._co_code_adaptive  # type: ignore[attr-defined] # noqa: SLF001 - no public way
    return code if _HAS_RUN in code[::2] else b""


def _copy(code: CodeType) -> CodeType:
    """Return a copy of code, with copies of the code of the functions in it."""
    return code.replace(co_consts=tuple(_copy(each) if isinstance(each, CodeType) else each for each in code.co_consts))
