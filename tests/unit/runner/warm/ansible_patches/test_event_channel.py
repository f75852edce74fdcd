"""The data of an event reaches ansible-runner without a separate file."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rolecall.runner.warm.ansible_patches import event_channel
from rolecall.runner.warm.ansible_patches.event_channel import EventChannel, EventWriter, use_event_channel

Event = dict[str, Any]


def _key(ident: str) -> str:
    return f":1:ev-{ident}"


def _write(channel: EventChannel, *events: Event) -> list[str]:
    """Write events as ansible-runner's callback does; return the keys of those that are stored in files."""
    stored: list[str] = []
    writer = EventWriter(channel.descriptor, json.JSONEncoder, lambda key, _event: stored.append(key))
    for event in events:
        writer.set(_key(event["uuid"]), event)
    return stored


def test_each_event_is_found_once_in_any_order() -> None:
    channel = EventChannel()
    events = [{"uuid": ident, "text": "line\nline"} for ident in "ab"]
    assert _write(channel, *events) == []
    assert [channel.take("b"), channel.take("a"), channel.take("a")] == [*reversed(events), None]
    _write(channel, {"uuid": "c"})
    assert channel.take("c") == {"uuid": "c"}


def test_large_event_is_stored_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_channel, "LARGE_BYTES", 100)
    channel = EventChannel()
    assert _write(channel, {"uuid": "a", "text": "x" * 100}) == [_key("a")]
    assert channel.take("a") is None


def test_event_beyond_the_memory_limit_is_stored_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_channel, "LIMIT_BYTES", 50)
    assert _write(EventChannel(), *({"uuid": ident} for ident in "abcd")) == [_key("d")]


def _runner(directory: Path, channel: EventChannel, *, accepts: bool = True) -> tuple[Any, list[Event]]:
    """Return a runner that uses the channel, and the events that reach its own callback."""
    (directory / "job_events").mkdir()
    events: list[Event] = []
    runner = SimpleNamespace(
        config=SimpleNamespace(artifact_dir=str(directory), ident="run"),
        event_callback=events.append,
        last_stdout_update=0.0,
        event_handler=lambda _event: accepts,
    )
    use_event_channel(runner, channel)
    return runner, events


def test_runner_writes_complete_event_with_private_mode(tmp_path: Path) -> None:
    channel = EventChannel()
    runner, events = _runner(tmp_path, channel)
    _write(channel, {"uuid": "a", "event": "runner_on_ok"})
    runner.event_callback({"uuid": "a", "counter": 7, "stdout": "ok"})
    (file,) = (tmp_path / "job_events").iterdir()
    assert file.name == "7-a.json"
    assert file.stat().st_mode & 0o777 == 0o600
    expected = {"uuid": "a", "counter": 7, "stdout": "ok", "runner_ident": "run", "event": "runner_on_ok"}
    assert json.loads(file.read_text()) == expected
    assert not events


def test_runner_writes_no_event_that_the_handler_rejects(tmp_path: Path) -> None:
    channel = EventChannel()
    runner, _ = _runner(tmp_path, channel, accepts=False)
    _write(channel, {"uuid": "a"})
    runner.event_callback({"uuid": "a", "counter": 1})
    assert not list((tmp_path / "job_events").iterdir())


def test_event_outside_the_channel_goes_to_the_original_callback(tmp_path: Path) -> None:
    runner, events = _runner(tmp_path, EventChannel())
    given = [{"uuid": "elsewhere", "counter": 1}, {"event": "EOF"}]
    for event in given:
        runner.event_callback(event)
    assert events == given
