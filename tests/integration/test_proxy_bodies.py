"""Bodies that parsers read differently: what the API server stores is what the proxy has read, or it is rejected."""

import json
from typing import Any

import pytest

from rolecall.kube.references import RawObject
from tests.integration.proxied import Run
from tests.integration.test_proxy_requests import Asking, asking, owners
from tests.support.world import CONFIG_MAP

__all__ = ["asking"]

JSON, YAML = "application/json", "application/yaml"
DUPLICATES = {
    "name": '{"metadata":{"name":"first","name":"odd"},"data":{"a":"1"}}',
    "owners": '{"metadata":{"name":"odd","ownerReferences":[OWNER],"ownerReferences":[]},"data":{"a":"1"}}',
    "no owner": '{"metadata":{"name":"odd","ownerReferences":[],"ownerReferences":[OWNER]},"data":{"a":"1"}}',
    "annotation": '{"metadata":{"name":"odd","annotations":{"rolecall.dev/adopt":"false","rolecall.dev/adopt":"x"}}}',
    "value": '{"metadata":{"name":"odd"},"data":{"a":"1","a":"2"}}',
    "escaped": '{"metadata":{"name":"first","n\\u0061me":"odd"},"data":{"a":"1"}}',
}
TEXT = '{"metadata":{"name":"odd"},"data":{"a":"TEXT"}}'
PLAIN = TEXT.encode()
ODD = {
    "invalid UTF-8": (PLAIN.replace(b"TEXT", b"\xff\xc3("), JSON),
    "surrogate": (PLAIN.replace(b"TEXT", b"\\ud800"), JSON),
    "byte order mark": (b"\xef\xbb\xbf" + PLAIN, JSON),
    "second object": (PLAIN + PLAIN, JSON),
    "trailing text": (PLAIN + b" x", JSON),
    "trailing zero": (PLAIN + b"\0", JSON),
    "trailing comma": (PLAIN.replace(b"}}", b"},}"), JSON),
    "comment": (PLAIN + b"# x", JSON),
    "not a number": (PLAIN.replace(b'"TEXT"', b"NaN"), JSON),
    "control character": (PLAIN.replace(b"TEXT", b"\x01"), JSON),
    "capital": (PLAIN.replace(b'"data"', b'"Data"'), JSON),
    "UTF-16": (TEXT.encode("utf-16"), JSON),
    "UTF-16 with its parameter": (TEXT.encode("utf-16"), f"{JSON}; charset=utf-16"),
    "JSON as YAML": (PLAIN, YAML),
    "YAML as JSON": (b"metadata: {name: odd}", JSON),
    "JSON as protobuf": (PLAIN, "application/vnd.kubernetes.protobuf"),
    "JSON as CBOR": (PLAIN, "application/cbor"),
    "CBOR": (b"\xd9\xd9\xf7\xa1hmetadata\xa1dnamecodd", "application/cbor"),
    "JSON as text": (PLAIN, "text/plain"),
    "JSON as a JSON": (PLAIN, "application/example+json"),
    "two types": (PLAIN, f"{JSON}, {YAML}"),
    "broken type": (PLAIN, f"{JSON}; ="),
    "capital type": (PLAIN, "APPLICATION/JSON"),
    "YAML of two documents": (b"metadata: {name: odd}\n---\nmetadata: {name: other}", YAML),
    "YAML of an empty document": (b"metadata: {name: odd}\n---\n", YAML),
    "YAML with its start and end": (b"---\nmetadata: {name: odd}\n...\n", YAML),
    "JSON before a document of YAML": (PLAIN + b"\n---\n{}", YAML),
    "YAML with a byte order mark": (b"\xef\xbb\xbfmetadata: {name: odd}", YAML),
    "YAML in UTF-16": ("metadata: {name: odd}".encode("utf-16"), YAML),
    "YAML with invalid UTF-8": (b"metadata: {name: odd}\ndata: {a: \xff}", YAML),
    "JSON with invalid UTF-8 as YAML": (PLAIN.replace(b"TEXT", b"\xff"), YAML),
    "YAML with a duplicate": (b"metadata: {name: odd}\ndata: {a: b, a: c}", YAML),
    "YAML with a number by sixty": (b"metadata: {name: odd}\ndata: {a: 12:30}", YAML),
    "YAML with an exponent": (b"metadata: {name: odd}\ndata: {a: 1e3}", YAML),
    "YAML with an octal": (b"metadata: {name: odd}\ndata: {a: 0o17}", YAML),
    "YAML with an infinite number": (b"metadata: {name: odd}\ndata: {a: .inf}", YAML),
    "YAML with a number in parts": (b"metadata: {name: odd}\ndata: {a: 1_000}", YAML),
    "YAML with an eight": (b"metadata: {name: odd}\ndata: {a: 08}", YAML),
    "YAML with a generation": (b"metadata: {name: odd, generation: 1e3, deletionGracePeriodSeconds: 0o17}", YAML),
    "YAML with an equal sign": (b"metadata: {name: odd}\ndata: {a: =}", YAML),
    "YAML with a letter for yes": (b"metadata: {name: odd}\ndata: {a: y}", YAML),
    "YAML with binary": (b"metadata: {name: odd}\ndata: {a: !!binary aGFsbG8=}", YAML),
    "YAML with a tag": (b"metadata: {name: odd}\ndata: {a: !x b}", YAML),
    "YAML with an alias": (b"metadata: {name: odd}\ndata: &x {a: b}\nbinaryData: *x", YAML),
    "YAML with a merge": (b"metadata: {name: odd}\ndata: {<<: {a: b}, a: c}", YAML),
    "YAML with a number as a key": (b"metadata: {name: odd}\ndata: {1: b}", YAML),
    "YAML with a truth as a key": (b"metadata: {name: odd}\ndata: {yes: b}", YAML),
}


async def stored(run: Run) -> RawObject | None:
    """Return the object that a request has created, and remove it."""
    found = await run.world.find(CONFIG_MAP, "odd")
    if found is not None:
        await run.world.delete(CONFIG_MAP, "odd")
    return found


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
async def test_of_duplicate_keys_the_last_is_stored_or_all_are_rejected(asking: Asking, validation: str) -> None:
    run = asking.run
    owner = run.itself.owner
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.key.name, "uid": owner.uid}
    for case, text in DUPLICATES.items():
        body = text.replace("OWNER", json.dumps(reference)).encode()
        target = f"{asking.path}?fieldValidation={validation}"
        expected = json.loads(await asking.api_server("POST", f"{target}&dryRun=All", body))
        status, _ = await asking.proxy("POST", target, body)
        assert (case, status) == (case, expected.get("code", 201))
        assert (status == 400) == (validation == "Strict")
        found = await stored(run)
        assert (status == 201) == (found is not None)
        if found is not None:
            assert (case, owners(found)) == (case, [owner.uid])
            assert (case, found.get("data")) == (case, json.loads(body).get("data"))


async def test_odd_bodies_are_stored_as_the_api_server_reads_them_with_an_owner(asking: Asking) -> None:
    """For each, the API server itself shows what it would store."""
    run = asking.run
    differences: dict[str, Any] = {}
    for case, (body, content_type) in ODD.items():
        expected = json.loads(
            await asking.api_server("POST", f"{asking.path}?dryRun=All", body, Content_Type=content_type, Accept=JSON)
        )
        status, _ = await asking.proxy("POST", asking.path, body, Content_Type=content_type, Accept=JSON)
        found = await stored(run)
        seen = (status, found and found.get("data"), found and owners(found))
        code = expected.get("code", 201)
        wanted = (code, expected.get("data") if code == 201 else None, [run.itself.owner.uid] if code == 201 else None)
        if seen != wanted:
            differences[case] = (seen, wanted, expected.get("message"))
    assert not differences, "\n".join(f"{case}: {each}" for case, each in differences.items())
