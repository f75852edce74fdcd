import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from rolecall.kube.client import ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT, UNREAD, SelectedReads, Selection
from rolecall.kube.connection import Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK

SECRET = GVK("", "v1", "Secret")
METADATA = {"name": "login", "namespace": "ns", "resourceVersion": "7"}
PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": METADATA}


@dataclass
class Answers:
    """A connection that gives one answer to every request and remembers the requests."""

    answer: object
    requests: list[Request] = field(default_factory=list)

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return how the kind is served."""
        return ApiResource(gvk, "secrets", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced

    async def receive(self, request: Request) -> bytes:
        """Answer a request."""
        self.requests.append(request)
        return json.dumps(self.answer).encode()

    async def receive_up_to(self, request: Request, most_bytes: int | None) -> bytes | None:
        """Answer a request, whatever the limit."""
        del most_bytes
        return await self.receive(request)

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Answer with one line."""
        yield await self.receive(request)


async def test_one_name_is_asked_for_by_a_field_selector() -> None:
    answers = Answers({"metadata": {"resourceVersion": "9"}, "items": []})
    pages = [page async for page in SelectedReads(answers, Selection("login")).list_pages(SECRET, "ns")]
    assert pages == [([], "9")]
    [request] = answers.requests
    assert (request.path, request.query) == (
        "/api/v1/namespaces/ns/secrets",
        {"limit": "100", "fieldSelector": "metadata.name=login"},
    )


async def test_metadata_alone_is_asked_for_and_shown_as_the_kind_that_it_is() -> None:
    selection = Selection(metadata_only=True)
    shown = {"apiVersion": "v1", "kind": "Secret", "metadata": METADATA, UNREAD: "7"}
    listed = Answers({"metadata": {"resourceVersion": "9"}, "items": [PARTIAL]})
    assert [page async for page in SelectedReads(listed, selection).list_pages(SECRET)] == [([shown], "9")]
    watched = Answers({"type": "MODIFIED", "object": PARTIAL})
    assert [event async for event in SelectedReads(watched, selection).watch(SECRET, None, "6", 1.0)] == [
        ("MODIFIED", shown)
    ]
    assert [each.requests[0].accept for each in (listed, watched)] == [ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT]


async def test_an_object_that_cannot_be_read_is_shown_by_its_version() -> None:
    watched = Answers({"type": "ADDED", "object": PARTIAL})
    events = [event async for event in SelectedReads(watched, Selection()).watch(SECRET, None, "6", 1.0)]
    assert [(kind, obj["kind"], obj[UNREAD]) for kind, obj in events] == [("ADDED", "Secret", "7")]
