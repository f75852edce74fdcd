"""A run and its end touch no file in the thread of the event loop, which also serves the proxy and renews the Lease."""

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.content import PlaybookContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy import Proxy
from rolecall.runner.reconcile.own_writes import OwnWrites
from rolecall.runner.runs.api_access import ApiAccess
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.process import ProcessRunner, SubprocessStarter
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.runs.test_launcher import thing

ENDING = '{"ending": {"status": "successful", "rc": 0}, "survivors": []}'


class FileCalls:
    """The calls on files below a directory while it is set, by the thread that made them."""

    def __init__(self) -> None:
        self.below: Path | None = None
        self.by_thread: dict[int, list[str]] = {}

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of a call; an audit hook."""
        paths = [str(each) for each in arguments if isinstance(each, str | os.PathLike)]
        if self.below is not None and any(path.startswith(str(self.below)) for path in paths):
            self.by_thread.setdefault(threading.get_ident(), []).append(f"{event} {' '.join(paths)}")


@pytest.fixture(scope="module")
def hook() -> FileCalls:
    calls = FileCalls()
    sys.addaudithook(calls.audit)  # for good: there is no way to remove one
    return calls


@pytest.fixture
def file_calls(hook: FileCalls, tmp_path: Path) -> Iterator[FileCalls]:
    hook.below, hook.by_thread = tmp_path, {}
    yield hook
    hook.below = None


@pytest.fixture
def launcher(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Give a launcher of a playbook with an inventory, whose runs end at once."""
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts").write_text("localhost\n")
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "inventory"))
    (tmp_path / "play.yml").write_text("- hosts: localhost\n")
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\necho '{ENDING}'\n")
    interpreter.chmod(0o755)
    runner = ProcessRunner(SubprocessStarter())
    monkeypatch.setattr(sys, "executable", os.fspath(interpreter))
    access = ApiAccess(cluster, Proxy(cluster), OwnWrites(), lambda _gvk, _ownership: None, tmp_path)
    watch = Watch(THING, PlaybookContent(tmp_path / "play.yml"), max_runner_artifacts=1)
    return Launcher(watch, runner, access, Settings(debug_logs=True), tmp_path)


async def test_a_run_touches_no_file_in_the_thread_of_the_loop(launcher: Launcher, file_calls: FileCalls) -> None:
    for ident in ("7", "8"):
        assert (await launcher.run(thing(), ident, finalizing=False)).rc == 0
    await launcher.remove_workspace(ObjectKey("default", "one"))
    on_loop = file_calls.by_thread.pop(threading.get_ident(), [])
    elsewhere = {call.partition(" ")[0] for calls in file_calls.by_thread.values() for call in calls}
    assert [call for call in on_loop if not call.startswith("subprocess.Popen ")] == []
    assert {"open", "shutil.copytree", "shutil.rmtree", "os.rename", "os.symlink"} <= elsewhere


async def test_neither_does_a_run_that_cannot_be_prepared(launcher: Launcher, file_calls: FileCalls) -> None:
    gone = replace(launcher, watch=replace(launcher.watch, content=PlaybookContent(launcher.root / "gone.yml")))
    assert "gone.yml" in (await gone.run(thing(), "7", finalizing=False)).message
    assert file_calls.by_thread.pop(threading.get_ident(), []) == []
    assert file_calls.by_thread
