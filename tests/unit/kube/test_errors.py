import pytest

from rolecall.kube.errors import (
    MESSAGE_LIMIT,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    NotServedError,
    TooLargeError,
    UnknownKindError,
    from_status,
)
from rolecall.kube.references import GVK


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, ForbiddenError),
        (404, NotServedError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (500, ApiError),
        (429, ApiError),
    ],
)
def test_status_determines_error_class(status: int, kind: type[ApiError]) -> None:
    error = from_status(status, {"reason": "Why", "message": "because", "details": {"name": "web"}})
    assert type(error) is kind
    assert (error.status, error.reason, error.message, error.details) == (status, "Why", "because", {"name": "web"})
    assert str(error) == f"{status} Why: because"


@pytest.mark.parametrize(
    "body",
    [
        "404 page not found",
        "<html>nginx</html>",
        {},
        {"reason": "NotFound", "details": {}},
        {"reason": "NotFound", "details": {"group": "example.com", "kind": "widgets"}},
        {"reason": "NotFound", "details": {"name": ""}},
        {"reason": "", "details": {"name": "web"}},
    ],
)
def test_404_that_names_no_object_is_no_deletion(body: object) -> None:
    assert type(from_status(404, body)) is NotServedError


def test_404_that_names_the_object_is_not_found() -> None:
    assert type(from_status(404, {"reason": "NotFound", "details": {"name": "web"}})) is NotFoundError


def test_body_other_than_status_object_is_message() -> None:
    error = from_status(502, "<html>Bad Gateway</html>")
    assert (error.reason, error.message, error.details) == ("", "<html>Bad Gateway</html>", {})


@pytest.mark.parametrize("body", [{}, {"reason": None, "message": None, "details": None}, {"details": "text"}])
def test_status_object_may_be_empty(body: dict[str, object]) -> None:
    error = from_status(500, body)
    assert (error.reason, error.message, error.details) == ("", "", {})


def test_long_message_is_truncated() -> None:
    error = from_status(400, "x" * 10_000)
    assert len(error.message) == MESSAGE_LIMIT
    assert len(str(error)) < MESSAGE_LIMIT + 20


def test_unknown_kind_error_names_kind() -> None:
    error = UnknownKindError(GVK("example.com", "v1", "Widget"))
    assert "example.com/v1, Kind=Widget" in str(error)
    assert error.gvk.kind == "Widget"


@pytest.mark.parametrize(
    ("status", "message", "is_too_large"),
    [
        (413, "limit is 3145728", True),
        (500, "etcdserver: request is too large", True),
        (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max", True),
        (500, "etcdserver: request timed out", False),
        (422, "request is too large", False),
    ],
)
def test_too_large_error_differs_from_temporary_error(status: int, message: str, *, is_too_large: bool) -> None:
    assert isinstance(from_status(status, {"message": message}), TooLargeError) is is_too_large
