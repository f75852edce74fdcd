import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.references import GVK
from rolecall.runner.proxy import Ownership
from rolecall.runner.proxy.bodies import PROTOBUF_MEDIA_TYPE as MEDIA_TYPE
from rolecall.runner.proxy.bodies import add_to_protobuf_metadata as add_to_metadata
from rolecall.runner.proxy.bodies import decode_protobuf as decode
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

# What kubectl sends for `kubectl create configmap cm --from-literal=a=1 -n ns`: envelope, metadata, data.
BODY = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1e\n\x14\n\x02cm\x12\x00\x1a\x02ns"\x00*\x002\x008\x00B\x00'
    b'\x12\x06\n\x01a\x12\x011\x1a\x00"\x00'
)
REFERENCE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "u1"}


def test_name_and_namespace_are_read() -> None:
    assert decode(BODY) == {"metadata": {"name": "cm", "namespace": "ns"}}


def test_what_is_added_is_there_and_what_was_there_stays() -> None:
    controller = REFERENCE | {"uid": "u2", "controller": True, "blockOwnerDeletion": True}
    changed = add_to_metadata(BODY, {"note": "ä" * 200}, [REFERENCE])
    changed = add_to_metadata(changed, {"note": "new"}, [controller])
    assert decode(changed) == {
        "metadata": {
            "name": "cm",
            "namespace": "ns",
            "annotations": {"note": "new"},
            "ownerReferences": [REFERENCE, controller],
        }
    }
    assert b"\x12\x06\n\x01a\x12\x011" in changed
    assert changed.startswith(BODY[:4])


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s\x00\xff", b"k8s\x00\x12\x7f", b"k8s\x00\x1a\x04gzip", BODY[:-12]])
def test_what_is_no_object_is_none_or_empty(body: bytes) -> None:
    assert decode(body) in (None, {"metadata": {}})


@given(st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    decode(b"k8s\x00" + body)


@given(st.dictionaries(st.text(min_size=1), st.text()), st.text())
def test_any_text_survives(annotations: dict[str, str], name: str) -> None:
    reference = REFERENCE | {"name": name}
    found = decode(add_to_metadata(BODY, annotations, [reference]))
    assert found is not None
    assert found["metadata"].get("annotations", {}) == annotations
    assert found["metadata"]["ownerReferences"] == [reference]


async def test_a_created_object_in_protobuf_gets_its_owner(run: Run, api_server: ApiServer) -> None:
    async def created(_: web.Request) -> web.Response:
        return web.json_response({"kind": "ConfigMap"}, status=201)

    path = "/api/v1/namespaces/ns/configmaps"
    api_server.answers["POST", path] = created
    async with run.session.post(path, data=BODY, headers={"Content-Type": MEDIA_TYPE}):
        pass
    sent = decode(api_server.last.body)
    assert sent is not None
    assert [reference["uid"] for reference in sent["metadata"]["ownerReferences"]] == ["uid-of-one"]
    assert run.dependents == [(GVK("", "v1", "ConfigMap"), Ownership.OWNER_REFERENCE)]
