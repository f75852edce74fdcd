"""Requests that the fork server can't fulfill, and changes after which it doesn't fork."""

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rolecall.runner.warm import server as server_module
from rolecall.runner.warm.forked_child import ProcessTitles
from rolecall.runner.warm.server import GROWTH_LIMIT_BYTES, LoadedState, _Server
from rolecall.system.files import ChangingFiles


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[_Server, socket.socket]]:
    """Yield a server whose children only wait for a signal, and the operator's end of its socket."""

    def wait_for_a_signal(*_: object) -> None:
        signal.pause()
        os._exit(0)

    monkeypatch.setattr(_Server, "run_child", wait_for_a_signal)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(20)
    with ours, theirs:
        yield _Server(theirs, ProcessTitles(0, 0, 0), {}, LoadedState(ChangingFiles(), 1 << 60), {}, [], (), None), ours


def response(server: tuple[_Server, socket.socket], streams: int = 3) -> dict[str, object]:
    """Request a fork with that many descriptors; return the response."""
    with Path(os.devnull).open() as null:
        socket.send_fds(server[1], [json.dumps({"start": "1", "descriptors": 3}).encode()], [null.fileno()] * streams)
    assert server[0].handle_request()
    return dict(json.loads(server[1].recv(4096)))


def test_process_without_pidfd_is_killed(
    server: tuple[_Server, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def pidfd_open(pid: int) -> int:
        found.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    assert response(server)["failed"] == "1"
    assert os.waitstatus_to_exitcode(os.waitpid(found[0], 0)[1]) == -signal.SIGKILL
    assert server[0].children == {}


def test_request_with_missing_descriptors_fails(server: tuple[_Server, socket.socket]) -> None:
    assert response(server, streams=1)["failed"] == "1"
    assert server[0].children == {}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plugins" / "color.py"
    path.parent.mkdir()
    path.write_text("COLOR = 'red'\n")
    module = ModuleType("ansible_collections.some.thing")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda plugin: plugin.write_text("COLOR = 'green'\n"), "{home}/plugins/color.py has changed"),
        (lambda plugin: os.utime(plugin.parent, ns=(1, 1)), "{home}/plugins has changed"),
        (Path.unlink, "{home}/plugins has changed"),
        (lambda plugin: (plugin.parent.parent / ".ansible.cfg").touch(), "{home}/.ansible.cfg has changed"),
        (lambda plugin: (plugin.parent.parent / ".bash_history").touch(), ""),
        (lambda _plugin: None, ""),
    ],
    ids=["file", "directory", "removal", "configuration", "other-file", "nothing"],
)
def test_change_of_loaded_file_is_found(plugin: Path, change: Callable[[Path], object], expected: str) -> None:
    before = LoadedState.now()
    change(plugin)
    assert before.difference() == expected.format(home=plugin.parent.parent)


def test_growth_beyond_limit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = LoadedState.now()
    monkeypatch.setattr(server_module, "_memory_bytes", lambda: before.memory_bytes + GROWTH_LIMIT_BYTES + 1)
    assert before.difference() == f"the server has grown by {GROWTH_LIMIT_BYTES + 1} bytes"
