import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    plain_errors,
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


MESSAGE = 'deployments.apps "web" is forbidden: User "system:serviceaccount:a:b" cannot patch it: it isn\'t é'
FORBIDDEN = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": MESSAGE,
    "reason": "Forbidden",
    "details": {"name": "web", "group": "apps", "kind": "deployments"},
    "code": 403,
}
BODY = json.dumps(FORBIDDEN, separators=(",", ":"), ensure_ascii=False)
PLAIN = f"{MESSAGE} (403)"
CLIENT_ERROR = "(403)\nReason: Forbidden\nHTTP response headers: HTTPHeaderDict({'Date': 'x'})\nHTTP response body: "


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (BODY, PLAIN),
        (f"Failed to patch object: {BODY}\n", f"Failed to patch object: {PLAIN}"),
        (f"Failed to patch object: {BODY.encode()!r}", f"Failed to patch object: {PLAIN}"),
        (f"Failed: {(BODY + chr(10)).encode()!r}, twice: {BODY}!", f"Failed: {PLAIN}, twice: {PLAIN}!"),
        (f"a {json.dumps(FORBIDDEN, indent=2, sort_keys=True)} b", f"a {PLAIN} b"),
        (json.dumps({"error": FORBIDDEN}), f'{{"error": {PLAIN}}}'),
        (json.dumps({"msg": BODY}), f'{{"msg": "{PLAIN}"}}'),
        (json.dumps({"msg": json.dumps({"msg": BODY})}), '{"msg": "{\\"msg\\": \\"' + PLAIN + '\\"}"}'),
        (json.dumps({"msg": f"Failed: {BODY.encode()!r}"}), f'{{"msg": "Failed: {PLAIN}"}}'),
        (f"{CLIENT_ERROR}{BODY}\n\nOriginal traceback: \n  File x\n", PLAIN),
        (f"Lookup: {CLIENT_ERROR}{BODY.encode()!r}\n\n", f"Lookup: {PLAIN}"),
        (BODY.replace(',"code":403', ""), MESSAGE),
    ],
)
def test_status_object_in_a_text_is_replaced_by_its_message(text: str, plain: str) -> None:
    assert plain_errors(text) == plain


@pytest.mark.parametrize("text", [BODY, str(BODY.encode()), json.dumps(BODY)[1:-1]], ids=["json", "bytes", "escaped"])
def test_cut_status_object_is_replaced_by_the_start_of_its_message(text: str) -> None:
    end = text.index("cannot")
    assert plain_errors(f"Failed: {text[:end]}…") == f"Failed: {MESSAGE[: MESSAGE.index('cannot')].strip()}…"
    complete = text[: text.index("reason")]
    assert plain_errors(f"Failed: {complete}") == f"Failed: {MESSAGE}…"
    without_message = f"Failed: {text[:60]}"
    assert plain_errors(without_message) == without_message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        '{"kind":"Status","status":"Success","message":"done"}',
        '{"kind":"Pod","status":"Failure","message":"no"}',
        '{"kind":"Status","status":"Failure"}',
        '{"message":"no","code":403}',
        "Reason: Forbidden\nHTTP response body: none",
        "b'{}'",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert plain_errors(text) == text


PIECES = st.sampled_from(
    [*BODY, *map(str, FORBIDDEN), BODY[:40], BODY[40:], "\\", '"', "{", "}", "b'", "'", "\\x", "é"]
)


@given(st.lists(PIECES | st.text()).map("".join))
def test_no_text_raises_and_none_gets_longer(text: str) -> None:
    assert len(plain_errors(text)) <= len(text) + 1, "a cut is marked"
    if '"Status' not in text and "Status\\" not in text:
        assert plain_errors(text) == text


@given(st.text(min_size=1).filter(str.strip), st.integers(0, 3), st.text(alphabet="abc .:"))
def test_message_is_found_at_any_level_of_escapes(message: str, level: int, before: str) -> None:
    text = json.dumps(FORBIDDEN | {"message": message})
    for _ in range(level):
        text = json.dumps(text)[1:-1]
    assert plain_errors(before + text) == f"{before}{message.strip()} (403)"
