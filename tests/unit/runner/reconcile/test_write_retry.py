import pytest

from rolecall.kube.errors import ApiError, ConflictError, KubeError, TooLargeError, UnreachableError
from rolecall.runner.reconcile import status_writer as write_retry
from rolecall.runner.reconcile.status_writer import write_with_retry

REFUSED = ApiError(500, "InternalError", "failed calling webhook: no endpoints")
AWAY = UnreachableError("nobody there")
CONFLICT = ConflictError(409, "Conflict", "the object has been modified")


class Server:
    """Gives the errors in turn, then takes the write; its clock moves by half a minute with each."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)
        self.time = 0.0

    async def write(self) -> str:
        """Take a write."""
        self.time += 30.0
        if self.errors:
            raise self.errors.pop(0)
        return "written"


async def context(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(write_retry, "FIRST_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("rolecall.runner.reconcile.status_writer.time.monotonic", lambda: server.time)
    return await write_with_retry(server.write)


@pytest.mark.parametrize("errors", [[REFUSED], [CONFLICT], [CONFLICT, REFUSED]])
async def test_a_server_that_goes_on_refusing_is_given_up_after_a_minute(
    errors: list[KubeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(*(errors * 100)[:100])
    with pytest.raises(ApiError, match=r"webhook|modified"):
        await context(server, monkeypatch)
    assert len(server.errors) == 97


async def test_one_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await context(Server(*[AWAY] * 100), monkeypatch) == "written"


async def test_a_conflict_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await context(Server(CONFLICT, CONFLICT), monkeypatch) == "written"


async def test_a_refusal_now_and_then_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await context(Server(*[REFUSED, REFUSED, AWAY] * 20), monkeypatch) == "written"


async def test_what_does_not_fit_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*[TooLargeError(500, "InternalError", "etcdserver: request is too large")] * 2)
    with pytest.raises(TooLargeError):
        await context(server, monkeypatch)
    assert len(server.errors) == 1
