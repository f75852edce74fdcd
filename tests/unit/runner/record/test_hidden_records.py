"""Records of tasks with ``no_log``: values are masked; what identifies objects, and the record's structure, never."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.cli.main import main
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.sessions import Exchange, RequestOrigin
from rolecall.runner.record.document import document_of
from rolecall.runner.record.reader import StoredRecord, read_text
from rolecall.runner.record.run_record import Ending
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.secrets.mask import MIN_ANYWHERE
from rolecall.runner.secrets.values import LAST_APPLIED
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import exchange, make_record

SECRETS = "/api/v1/namespaces/production/secrets"
CREATED = "2026-01-02T03:04:05Z"
CONDITION = {"type": "Failure", "status": "False", "reason": "Successful", "lastTransitionTime": CREATED}
WORDS = (
    *(
        "production",
        "database",
        "uid-of-database",
        "Secret",
        "ConfigMap",
        "Failure",
        "Successful",
        "metadata",
        "status",
    ),
    *(
        "secrets",
        "namespaces",
        "exchange",
        "answer",
        "request",
        "password",
        "labels",
        "contentType",
        "creationTimestamp",
    ),
    *(
        "kubernetes",
        "2026-01-02",
        CREATED,
        "demo.example.com/v1",
        "lastTransitionTime",
        "localhost",
        "succeeded",
        "duct",
    ),
)
"""Values that equal a name, a kind, a time, a condition, or a field, or are a part of one."""

KINDS = {
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Demo": ("/apis/demo.example.com/v1", "demos"),
}
SERVED = [
    ApiResource(GVK(group, "v1", kind), plural, namespaced=True, verbs=frozenset(), subresources=frozenset())
    for group, kind, plural in (
        ("", "Secret", "secrets"),
        ("", "ConfigMap", "configmaps"),
        (DEMO.group, "Demo", "demos"),
    )
]
FIELDS = st.sampled_from(["password", "name", "type", "path", "reason", "status", "namespace", "tls.crt", "kind", "a"])
PLANTED = st.text("0123456789abcdefXYZ+/é\n\"'<& ", min_size=1, max_size=60).map(lambda text: f"planted-{text}")
DATA = st.dictionaries(FIELDS, PLANTED | st.sampled_from(WORDS), min_size=1, max_size=4).filter(
    lambda data: data.get("namespace") != "production"  # shown, as in the token of a service account
)


def hidden(found: Exchange) -> Exchange:
    """Return an exchange of a task with ``no_log``."""
    return replace(found, origin=RequestOrigin("task-1", "localhost", is_hidden=True))


def stored_object(kind: str, data: dict[str, str], *, applied: bool = False) -> RawObject:
    """Return an object with values below ``data``, as the API server returns it."""
    metadata: RawObject = {
        "name": "database",
        "namespace": "production",
        "uid": "uid-of-database",
        "creationTimestamp": CREATED,
        "labels": {"app": "database"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "uid-of-owner"}],
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    obj: RawObject = {
        "apiVersion": "demo.example.com/v1" if kind == "Demo" else "v1",
        "kind": kind,
        "metadata": metadata,
        "data": encoded if kind == "Secret" else data,
    }
    if kind == "Demo":
        obj["status"] = {"conditions": [CONDITION]}
    if applied:
        before = {**obj, "metadata": {"name": "database", "namespace": "production", "annotations": {}}}
        metadata["annotations"] = {LAST_APPLIED: json.dumps(before)}
    return obj


def identity_of(obj: RawObject) -> Any:
    """Return the part of an object that no secret value may change."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    return obj["apiVersion"], obj["kind"], metadata, obj.get("status"), sorted(obj["data"])


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def record_of(*exchanges: Exchange) -> StoredRecord:
    """Return the record of a run, read from its text."""
    record = make_record(*exchanges, name="database")
    record.obj["metadata"]["namespace"] = "production"
    record.ending = Ending("succeeded", Outcome("successful"), {"conditions": [CONDITION]})
    return read_text(document_of(record, resources=SERVED).text, Path("one.jsonl"))


@given(kind=st.sampled_from(sorted(KINDS)), data=DATA, applied=st.booleans())
def test_any_hidden_object_keeps_its_identity_and_loses_its_values(
    kind: str, data: dict[str, str], *, applied: bool
) -> None:
    base, resource = KINDS[kind]
    path = f"{base}/namespaces/production/{resource}/database"
    obj = stored_object(kind, data, applied=applied)
    copy = stored_object("ConfigMap", {"copy": " ".join(data.values()), **data})
    record = record_of(
        hidden(exchange("GET", path, None, obj)),
        exchange("PUT", "/api/v1/namespaces/production/configmaps/copy", copy, copy),
        hidden(exchange("GET", f"{SECRETS}/absent", None, {"kind": "Status", "status": "Failure", "code": 404}, 404)),
    )
    read, written, _ = record.exchanges
    assert (read["path"], read["name"], read["namespace"], read["resource"]) == (
        path,
        "database",
        "production",
        resource,
    )
    assert identity_of(read["answer"]["json"]) == identity_of(obj)
    assert identity_of(written["request"]["json"]) == identity_of(copy)
    assert (record.kind, record.name) == ("Demo", "production/database")
    assert record.end["status"] == {"conditions": [CONDITION]}
    for shown in (read["answer"]["json"], written["request"]["json"], written["answer"]["json"]):
        pairs = [(value, shown["data"][key]) for key, value in obj["data"].items() if shown is read["answer"]["json"]]
        pairs += [(value, shown["data"].get(key)) for key, value in data.items() if len(value) >= MIN_ANYWHERE]
        assert [value for value, found in pairs if value == found and value != "localhost"] == []
    for text in (*texts(read), *texts(written)):
        assert "planted" not in text
    if applied:
        shown = json.loads(read["answer"]["json"]["metadata"]["annotations"][LAST_APPLIED])
        assert (shown["kind"], shown["metadata"]["name"], shown["metadata"]["namespace"]) == (
            kind,
            "database",
            "production",
        )
        assert "planted" not in "".join(texts(shown))


@pytest.mark.parametrize("value", WORDS)
def test_secret_equal_to_a_word_of_the_record_is_masked_only_as_a_value(value: str, tmp_path: Path) -> None:
    """Each part of the record that a reader or a replay needs stays, whichever it equals."""
    secret = stored_object("Secret", {"password": value}, applied=True)
    listed = exchange("GET", SECRETS, None, {"kind": "SecretList", "apiVersion": "v1", "items": [secret]})
    made = make_record(hidden(listed), name="database")
    made.obj["metadata"]["namespace"] = "production"
    made.ending = Ending("succeeded", Outcome("successful"), {"conditions": [CONDITION]})
    path = tmp_path / "one.jsonl"
    path.write_text(document_of(made, resources=SERVED).text)
    record = read_text(path.read_text(), path)
    (found,) = record.exchanges[0]["answer"]["json"]["items"]
    assert identity_of(found) == identity_of(secret)
    masked = base64.b64decode(found["data"]["password"]).decode()
    assert len(masked) == len(value)
    assert masked != value or value == "localhost"
    assert (record.name, record.end["outcome"], record.tasks[0]["place"]) == (
        "production/database",
        "succeeded",
        "/r/main.yml:3",
    )
    assert main(["record", "show", str(path)]) == 0


def test_strings_of_an_applied_secret_are_not_masked_elsewhere() -> None:
    secret = stored_object("Secret", {"password": "planted-one"}, applied=True)
    message = {"kind": "ConfigMap", "metadata": {"name": "other"}, "data": {"text": "Secret database in production"}}
    record = record_of(
        hidden(exchange("GET", f"{SECRETS}/database", None, secret)),
        exchange("PUT", f"{SECRETS[:-7]}configmaps/other", message, message),
    )
    assert record.exchanges[1]["request"]["json"]["data"] == {"text": "Secret database in production"}


def test_short_value_of_a_hidden_secret_remains_base64() -> None:
    """A replay decodes it as the run did."""
    secret = stored_object("Secret", {"pin": "1234"})
    record = record_of(hidden(exchange("GET", f"{SECRETS}/database", None, secret)))
    found = record.exchanges[0]["answer"]["json"]["data"]["pin"]
    assert len(base64.b64decode(found, validate=True)) == 4
    assert found != secret["data"]["pin"]
