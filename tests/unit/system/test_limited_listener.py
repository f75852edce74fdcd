import socket
from collections.abc import Callable, Iterator

import pytest

from rolecall.system.limited_listener import LimitedListener

Open = Callable[[float], LimitedListener]
LIMIT = 3


class Transport:
    """A transport with a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_extra_info(self, _name: str) -> socket.socket:
        """Return the socket."""
        return self._connection


@pytest.fixture
def listening() -> Iterator[Open]:
    opened: list[LimitedListener] = []

    def listen(idle_seconds: float) -> LimitedListener:
        listener = LimitedListener(socket.create_server(("127.0.0.1", 0)), LIMIT, "test", idle_seconds)
        listener.settimeout(0)
        opened.append(listener)
        return listener

    yield listen
    for listener in opened:
        listener.close()


def accepted(listener: LimitedListener) -> tuple[socket.socket, socket.socket]:
    """Connect, and return both ends. Raise BlockingIOError if the connection is rejected."""
    client = socket.create_connection(listener.getsockname(), timeout=60)
    return client, listener.accept()[0]


def is_open(client: socket.socket) -> bool:
    """Return whether the peer of a connection is connected."""
    client.settimeout(0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_connection_above_limit_replaces_longest_idle_one(listening: Open) -> None:
    listener = listening(0.0)
    ends = [accepted(listener) for _ in range(LIMIT + 2)]
    assert [is_open(client) for client, _ in ends] == [False, False, True, True, True]


def test_connection_in_use_is_not_replaced(listening: Open) -> None:
    listener = listening(0.0)
    ends = [accepted(listener) for _ in range(LIMIT)]
    with listener.in_use(Transport(ends[0][1])):  # type: ignore[arg-type] # as much of a transport as it needs
        accepted_later = accepted(listener)
        assert [is_open(client) for client, _ in [*ends, accepted_later]] == [True, False, True, True]
    newest = [accepted(listener), accepted(listener)]
    assert is_open(ends[0][0])
    assert all(is_open(client) for client, _ in newest)
    assert not is_open(ends[2][0])


def test_connection_is_closed_if_none_is_idle(listening: Open) -> None:
    listener = listening(3600.0)
    ends = [accepted(listener) for _ in range(LIMIT)]
    rejected = socket.create_connection(listener.getsockname(), timeout=60)
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert not is_open(rejected)
    assert all(is_open(client) for client, _ in ends)


def test_closed_connection_is_not_counted(listening: Open) -> None:
    listener = listening(3600.0)
    ends = [accepted(listener) for _ in range(LIMIT)]
    ends[1][1].close()
    client, _server = accepted(listener)
    assert is_open(client)
    assert is_open(ends[0][0])


def test_full_listener_warns_once(listening: Open, capsys: pytest.CaptureFixture[str]) -> None:
    listener = listening(0.0)
    _ends = [accepted(listener) for _ in range(LIMIT + 5)]
    output = capsys.readouterr()
    assert (output.out + output.err).count("Too many connections") == 1
