"""Frames of callers are those that ansible-core finds, without their source."""

import inspect
from collections.abc import Callable, Iterable

import pytest

from rolecall.runner.warm.ansible_patches import caller_frames

stack = pytest.importorskip("ansible.module_utils._internal._stack", reason="ansible-core 2.18 doesn't look at frames")


def seen_by(frames: Callable[[], Iterable[inspect.FrameInfo]]) -> list[tuple[object, str, str]]:
    """Return the frames that a function yields for a caller with infrastructure in between."""

    def infrastructure() -> list[inspect.FrameInfo]:
        _skip_stackwalk = True
        return list(frames())

    return [(each.frame, each.filename, each.function) for each in infrastructure()]


def test_frames_of_a_caller_are_those_of_ansible_without_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    original = stack.iter_stack
    monkeypatch.setattr(stack, "iter_stack", original)
    caller_frames.install()
    expected, found = seen_by(original), seen_by(stack.iter_stack)
    assert found[1:] == expected[1:]
    assert [function for _, _, function in found[:2]] == [
        "seen_by",
        "test_frames_of_a_caller_are_those_of_ansible_without_infrastructure",
    ]
