"""The stored objects of the sandbox after a run, which can also remove the kind."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rolecall.kube.connection import Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, NotFoundError, NotServedError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.crashtest.simulated_operator import stored

GADGET = GVK("test.rolecall.dev", "v1", "Gadget")


@pytest.mark.parametrize(
    "error", [NotFoundError(404, "NotFound", 'gadgets "one" not found'), NotServedError(404, "", "")]
)
async def test_object_of_a_removed_kind_is_absent(error: ApiError) -> None:
    class Client:
        async def resource_for_path(self, *_: str) -> ApiResource:
            return ApiResource(GADGET, "gadgets", namespaced=True, verbs=frozenset({"get"}), subresources=frozenset())

        async def receive(self, _request: Request) -> bytes:
            raise error

    context = cast("Any", SimpleNamespace(client=Client()))
    assert await stored(context, ObjectId(GADGET.group, "v1", "gadgets", ObjectKey("ns", "one"))) is None
