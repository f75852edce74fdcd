import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from aiohttp.http_exceptions import BadStatusLine
from hypothesis import given
from hypothesis import strategies as st

from rolecall.system.limited_listener import LimitedListener, RequestLog

Open = Callable[[], LimitedListener]
Ends = tuple[socket.socket, socket.socket]
LIMIT, PROTECTED = 4, 2


class Transport:
    """A transport with a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_extra_info(self, _name: str) -> socket.socket:
        """Return the socket."""
        return self._connection


def listen(protected: int = PROTECTED) -> LimitedListener:
    """Return a listener that raises BlockingIOError instead of waiting."""
    listener = LimitedListener(socket.create_server(("127.0.0.1", 0)), LIMIT, protected, "test")
    listener.settimeout(0)
    return listener


@pytest.fixture
def listener() -> Iterator[LimitedListener]:
    with listen() as listener:
        yield listener


def accepted(listener: LimitedListener, source: str = "127.0.0.1") -> Ends:
    """Connect, and return both ends. Raise BlockingIOError if the connection is rejected."""
    client = socket.create_connection(listener.getsockname(), timeout=60, source_address=(source, 0))
    connection = listener.accept()[0]
    with pytest.raises(BlockingIOError):
        listener.accept()
    return client, connection


def serve(listener: LimitedListener, ends: Ends, stack: ExitStack) -> None:
    """Keep the connection in use until the stack is closed."""
    stack.enter_context(listener.in_use(Transport(ends[1])))  # type: ignore[arg-type] # as much of one as it needs


def is_open(client: socket.socket) -> bool:
    """Return whether the peer of a connection is connected."""
    client.settimeout(0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def are_open(*ends: Ends) -> list[bool]:
    return [is_open(client) for client, _ in ends]


def test_connection_above_limit_replaces_oldest_one(listener: LimitedListener) -> None:
    ends = [accepted(listener) for _ in range(LIMIT + 2)]
    assert are_open(*ends) == [False, False, *[True] * LIMIT]


def test_connection_in_use_is_not_replaced_by_idle_ones(listener: LimitedListener) -> None:
    ends = [accepted(listener) for _ in range(LIMIT)]
    with ExitStack() as stack:
        for each in ends[:PROTECTED]:
            serve(listener, each, stack)
        newest = [accepted(listener) for _ in range(3 * LIMIT)]
        assert are_open(*ends) == [True] * PROTECTED + [False] * (LIMIT - PROTECTED)
        assert are_open(*newest[-2:]) == [True, True]
    idle = [accepted(listener) for _ in range(LIMIT)]
    assert are_open(*ends[:PROTECTED], *idle) == [False] * PROTECTED + [True] * LIMIT


def test_connections_in_use_leave_places_for_others(listener: LimitedListener) -> None:
    ends = [accepted(listener) for _ in range(LIMIT)]
    with ExitStack() as stack:
        for each in ends:
            serve(listener, each, stack)
        newest = [accepted(listener), accepted(listener), accepted(listener)]
        assert are_open(*ends, *newest) == [False, False, True, True, False, True, True]


def test_connection_is_rejected_if_all_are_protected() -> None:
    with listen(LIMIT) as listener, ExitStack() as stack:
        ends = [accepted(listener) for _ in range(LIMIT)]
        for each in ends:
            serve(listener, each, stack)
        rejected = socket.create_connection(listener.getsockname(), timeout=60)
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert not is_open(rejected)
        assert are_open(*ends) == [True] * LIMIT


@given(st.lists(st.integers(min_value=2, max_value=LIMIT), max_size=40))
def test_address_with_few_connections_keeps_them(sources: list[int]) -> None:
    """At most three others connect, in any order, and each may do so as often as it likes."""
    with listen() as listener:
        victim = accepted(listener)
        others = [accepted(listener, f"127.0.0.{source}") for source in sources]
        kept = Counter(source for source, ends in zip(sources, others, strict=True) if is_open(ends[0]))
        assert is_open(victim[0])
        assert sum(kept.values()) == min(len(sources), LIMIT - 1)
        assert all(kept[source] for source in sources), "each address has a place"
        for client, connection in [victim, *others]:
            client.close()
            connection.close()


def test_one_connection_is_accepted_per_turn(listener: LimitedListener) -> None:
    """The error ends the turn of the event loop."""
    clients = [socket.create_connection(listener.getsockname(), timeout=60) for _ in range(2)]
    first = listener.accept()[0]
    with pytest.raises(BlockingIOError):
        listener.accept()
    second = listener.accept()[0]
    assert [each.getpeername() for each in (first, second)] == [each.getsockname() for each in clients]


def test_closed_connection_is_not_counted(listener: LimitedListener) -> None:
    ends = [accepted(listener) for _ in range(LIMIT)]
    ends[1][1].close()
    newest = accepted(listener)
    assert are_open(newest, ends[0]) == [True, True]


def test_full_listener_warns_once(listener: LimitedListener, capsys: pytest.CaptureFixture[str]) -> None:
    _ends = [accepted(listener) for _ in range(LIMIT + 5)]
    output = capsys.readouterr()
    assert (output.out + output.err).count("Too many connections") == 1


@pytest.mark.parametrize("error", [BadStatusLine("Bearer secret"), ConnectionResetError("Bearer secret")])
def test_error_of_a_client_is_one_line_without_its_text(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    log = RequestLog("test")
    for _ in range(3):
        log.exception("Error handling request from %s", "10.0.0.1", exc_info=error)  # noqa: LOG004 - as aiohttp does
    output = capsys.readouterr()
    lines = [line for line in (output.out + output.err).splitlines() if "info" in line]
    assert len(lines) == 1
    assert type(error).__name__ in lines[0]
    assert "secret" not in lines[0]


def test_other_error_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        int("a bug")
    except ValueError as error:
        RequestLog("test").exception("Error handling request from %s", "10.0.0.1", exc_info=error)
    output = capsys.readouterr()
    assert "Traceback" in output.out + output.err
