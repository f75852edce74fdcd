"""What the fork server answers when it cannot fork."""

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rolecall.runner.warm import server as server_module
from rolecall.runner.warm.forked_child import ProcessTitles
from rolecall.runner.warm.server import LoadedState, _Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[_Server, socket.socket]]:
    """Give a server whose children only wait for a signal, and the operator's end of its socket."""

    def wait_for_a_signal(_server: _Server, _ident: str, _descriptors: list[int], _parent: int) -> None:
        signal.pause()
        os._exit(0)

    monkeypatch.setattr(_Server, "run_child", wait_for_a_signal)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(20)
    with ours, theirs:
        made = _Server(theirs, ProcessTitles(0, 0, 0), {}, LoadedState({}, 0, 1 << 60), {}, [], [])
        yield made, ours
        for pid in made.children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def ask(server: tuple[_Server, socket.socket], ident: str, streams: int = 3) -> tuple[dict[str, object], list[int]]:
    """Ask for a fork with that many descriptors; return the answer and the descriptors that came with it."""
    with Path(os.devnull).open() as null:
        socket.send_fds(server[1], [json.dumps({"start": ident, "descriptors": 3}).encode()], [null.fileno()] * streams)
    assert server[0].handle_request()
    message, descriptors, _, _ = socket.recv_fds(server[1], 4096, 1)
    return json.loads(message), descriptors


def test_a_handle_of_the_process_comes_with_the_answer(server: tuple[_Server, socket.socket]) -> None:
    answer, [descriptor] = ask(server, "1")
    assert server[0].children == {answer["pid"]: "1"}
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)
    while server[0].children:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        server[0].reap()
    assert json.loads(server[1].recv(4096)) == {"ended": "1", "code": -signal.SIGKILL}


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_failed_fork_fails_its_run_alone(
    server: tuple[_Server, socket.socket], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fork() -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fork)
        answer, _ = ask(server, "1")
    assert answer == {"failed": "1", "reason": f"the fork server cannot fork: [Errno {number}] {os.strerror(number)}"}
    after, [descriptor] = ask(server, "2")
    os.close(descriptor)
    assert after["started"] == "2"


def test_a_process_of_which_no_handle_can_be_made_is_killed(
    server: tuple[_Server, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def pidfd_open(pid: int) -> int:
        found.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    assert ask(server, "1")[0]["failed"] == "1"
    assert os.waitstatus_to_exitcode(os.waitpid(found[0], 0)[1]) == -signal.SIGKILL
    assert server[0].children == {}


def test_a_request_whose_descriptors_did_not_arrive_fails(server: tuple[_Server, socket.socket]) -> None:
    assert ask(server, "1", streams=1)[0]["failed"] == "1"
    assert server[0].children == {}


LIMIT_BYTES = 64 * 1024 * 1024


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plugins" / "colour.py"
    path.parent.mkdir()
    path.write_text("COLOUR = 'red'\n")
    module = ModuleType("ansible_collections.some.thing")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


def test_nothing_is_lost_as_long_as_nothing_changes(plugin: Path) -> None:
    assert plugin.exists()
    assert LoadedState.now(LIMIT_BYTES).difference() == ""


def test_a_changed_plugin_is_noticed(plugin: Path) -> None:
    before = LoadedState.now(LIMIT_BYTES)
    plugin.write_text("COLOUR = 'green'\n")
    assert before.difference() == f"{plugin} has changed"


def test_a_new_plugin_beside_another_is_noticed(plugin: Path) -> None:
    before = LoadedState.now(LIMIT_BYTES)
    os.utime(plugin.parent, ns=(1, 1))
    assert before.difference() == f"{plugin.parent} has changed"


def test_a_plugin_that_is_gone_is_noticed(plugin: Path) -> None:
    before = LoadedState.now(LIMIT_BYTES)
    plugin.unlink()
    assert "has changed" in before.difference()


def test_a_new_ansible_cfg_is_noticed(plugin: Path, tmp_path: Path) -> None:
    assert plugin.exists()
    before = LoadedState.now(LIMIT_BYTES)
    (tmp_path / ".ansible.cfg").write_text("[defaults]\n")
    assert "has changed" in before.difference()


def test_a_file_that_nothing_was_loaded_from_does_not_count(plugin: Path, tmp_path: Path) -> None:
    assert plugin.exists()
    before = LoadedState.now(LIMIT_BYTES)
    (tmp_path / ".bash_history").write_text("ls\n")
    assert before.difference() == ""


def test_growth_beyond_the_bound_is_noticed(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plugin.exists()
    before = LoadedState.now(LIMIT_BYTES)
    grown = before.memory_bytes + LIMIT_BYTES + 1
    monkeypatch.setattr(server_module, "_memory_bytes", lambda: grown)
    assert before.difference().startswith("the server has grown by ")
