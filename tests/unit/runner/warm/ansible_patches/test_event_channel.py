"""What is known of an event when it begins reaches ansible-runner's driver without a file of its own."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rolecall.runner.warm.ansible_patches import event_channel
from rolecall.runner.warm.ansible_patches.event_channel import EventChannel, EventWriter, use_event_channel

Event = dict[str, Any]


class Ordinary:
    """Stands for ansible-runner's own ways."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.seen: list[Event] = []

    def keep(self, key: str, _value: Event) -> None:
        """Keep an event."""
        self.kept.append(key)

    def on_event(self, event: Event) -> None:
        """Take an event."""
        self.seen.append(event)


def _key(ident: str) -> str:
    return f":1:ev-{ident}"


def _writer(channel: EventChannel, ordinary: Ordinary) -> EventWriter:
    return EventWriter(channel.descriptor, json.JSONEncoder, ordinary.keep)


def test_events_are_found_in_any_order_and_once() -> None:
    channel, ordinary = EventChannel(), Ordinary()
    writer = _writer(channel, ordinary)
    for ident in ("a", "b"):
        writer.set(_key(ident), {"uuid": ident, "text": "line\nline"})
    assert channel.take("b") == {"uuid": "b", "text": "line\nline"}
    assert channel.take("a") == {"uuid": "a", "text": "line\nline"}
    assert channel.take("a") is None
    writer.set(_key("c"), {"uuid": "c"})
    assert channel.take("c") == {"uuid": "c"}
    assert not ordinary.kept


def test_a_large_event_takes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_channel, "LARGE_BYTES", 100)
    channel, ordinary = EventChannel(), Ordinary()
    _writer(channel, ordinary).set(_key("a"), {"uuid": "a", "text": "x" * 100})
    assert ordinary.kept == [_key("a")]
    assert channel.take("a") is None


def test_events_take_the_ordinary_way_when_the_memory_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_channel, "LIMIT_BYTES", 50)
    channel, ordinary = EventChannel(), Ordinary()
    writer = _writer(channel, ordinary)
    for ident in ("a", "b", "c", "d"):
        writer.set(_key(ident), {"uuid": ident})
    assert ordinary.kept == [_key("d")]


def _runner(folder: Path, ordinary: Ordinary, *, wants: bool) -> Any:
    (folder / "job_events").mkdir()
    config = SimpleNamespace(artifact_dir=str(folder), ident="run")
    handler = {"event_handler": lambda _event: wants}
    return SimpleNamespace(config=config, event_callback=ordinary.on_event, last_stdout_update=0.0, **handler)


def test_the_driver_writes_the_whole_event_for_its_owner_only(tmp_path: Path) -> None:
    channel, ordinary = EventChannel(), Ordinary()
    runner = _runner(tmp_path, ordinary, wants=True)
    use_event_channel(runner, channel)
    _writer(channel, ordinary).set(_key("a"), {"uuid": "a", "event": "runner_on_ok"})
    runner.event_callback({"uuid": "a", "counter": 7, "stdout": "ok"})
    (file,) = (tmp_path / "job_events").iterdir()
    assert file.name == "7-a.json"
    assert file.stat().st_mode & 0o777 == 0o600
    expected = {"uuid": "a", "counter": 7, "stdout": "ok", "runner_ident": "run", "event": "runner_on_ok"}
    assert json.loads(file.read_text()) == expected
    assert not ordinary.seen


def test_the_driver_writes_no_event_that_nobody_wants(tmp_path: Path) -> None:
    channel, ordinary = EventChannel(), Ordinary()
    runner = _runner(tmp_path, ordinary, wants=False)
    use_event_channel(runner, channel)
    _writer(channel, ordinary).set(_key("a"), {"uuid": "a"})
    runner.event_callback({"uuid": "a", "counter": 1})
    assert not list((tmp_path / "job_events").iterdir())


def test_what_is_not_in_memory_is_left_to_the_driver(tmp_path: Path) -> None:
    channel, ordinary = EventChannel(), Ordinary()
    runner = _runner(tmp_path, ordinary, wants=True)
    use_event_channel(runner, channel)
    for event in ({"uuid": "elsewhere", "counter": 1}, {"event": "EOF"}):
        runner.event_callback(event)
    assert [event.get("uuid") for event in ordinary.seen] == ["elsewhere", None]
