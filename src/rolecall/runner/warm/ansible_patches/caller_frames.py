"""The frames of a caller, for deprecated values and warnings, without reading source files.

ansible-core 2.19 and newer get the frame of a caller from ``inspect.stack``. That reads the source of every frame and
searches all modules for it, which takes 12 ms of CPU time. Only the file name of the first frame is used. With
ansible-core 2.21, each loop over nothing deprecates a value, and so pays for it.
"""

import inspect
import sys
from collections.abc import Iterator
from types import FrameType

try:
    from ansible.module_utils._internal import _stack
except ImportError:  # before 2.19
    _stack = None


def install() -> None:
    """Find the frames of callers one by one."""
    if _stack:
        _stack.iter_stack = _iter_stack


def _iter_stack() -> Iterator[inspect.FrameInfo]:
    """Yield the frames from the caller outwards, without those that have the local variable ``_skip_stackwalk``."""
    _skip_stackwalk = True
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the only way to a frame without its source
    while frame:
        if "_skip_stackwalk" not in frame.f_locals:
            file = inspect.getsourcefile(frame) or inspect.getfile(frame)
            yield inspect.FrameInfo(frame, file, frame.f_lineno, frame.f_code.co_name, None, None)
        frame = frame.f_back
