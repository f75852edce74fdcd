"""Marked secrets are planted in every source, place, and spelling, pass the real proxy, and aren't in the record."""

import base64
import html
import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from aiohttp import web

from rolecall.cli.main import main
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.record.access import ANY, AccessSet
from rolecall.runner.record.document import Document, document_of
from rolecall.runner.record.reader import read_record
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.runs.events import RunEvent, cut
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import DEMO, Run

SECRETS = "/api/v1/namespaces/ns/secrets"
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
MARK = "planted"
PLAIN = "planted-Pa55word"
ODD = 'planted "quoted" <é & あ>\nand a second planted line\\'
OLD = "planted-before-the-last-apply"
BINARY = b"planted\xff\x00binary"
DIGITS = "90210471"
SPACED = " ".join(f"planted-{number}" for number in range(12))
PRIMARY = {
    "apiVersion": "demo.example.com/v1",
    "kind": "Demo",
    "metadata": {"name": "one", "namespace": "ns", "uid": "uid-of-one"},
    "spec": {"size": 1},
}


def encoded(value: str | bytes) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()


def secret(**data: str | bytes) -> RawObject:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "one", "namespace": "ns"},
        "data": {name: encoded(value) for name, value in data.items()},
    }


def config_map(**data: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy"}, "data": data}


class Recorded:
    """A run whose requests pass the real proxy and are recorded."""

    def __init__(self, run: Run, record: RunRecord) -> None:
        self.run, self.record = run, record

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> None:
        """Send a request of the run."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        async with self.run.session.request(method, path, data=data, headers=given) as response:
            await response.read()

    def ended(self, outcome: str = "succeeded", *failures: str, **surroundings: Any) -> Document:
        """Return the document of the run."""
        summary = Outcome("failed", failures=tuple(TaskFailure("Write", "", failure) for failure in failures))
        self.record.ending = Ending(outcome, summary, {"message": "\n".join(failures)})
        return document_of(self.record, **surroundings)


@pytest.fixture
async def recorded(start_run: Callable[..., Run]) -> Recorded:
    record = RunRecord(DEMO, PRIMARY, "7", Bodies(), 1 << 20)
    return Recorded(start_run(is_recorded=True, record=record.on_exchange), record)


def assert_hidden(document: Document, *values: str | bytes) -> None:
    """Assert that no value is in the text, in any encoding that this test knows, and that the text is whole."""
    text = document.text
    for value in values:
        content = value if isinstance(value, bytes) else value.encode()
        for offset in range(3):
            inner = base64.b64encode(bytes(offset) + content).decode().rstrip("=")[offset + 1 : -2]
            assert inner not in text
        if isinstance(value, str):
            spellings = [
                value,
                json.dumps(value)[1:-1],
                json.dumps(value, ensure_ascii=False)[1:-1],
                quote(value, safe=""),
            ]
            spellings += [json.dumps(each)[1:-1] for each in spellings]
            assert [each for each in spellings if each in text] == []
    assert MARK not in text
    for line in text.splitlines():
        json.loads(line)


async def read(recorded: Recorded, api_server: ApiServer, *values: str) -> None:
    """Simulate that the run reads a Secret with these values."""
    api_server.objects[f"{SECRETS}/one"] = secret(**{f"key{number}": value for number, value in enumerate(values)})
    await recorded.send("GET", f"{SECRETS}/one")


def bodies(recorded: Recorded) -> list[Any]:
    """Return the bodies of all requests as they are in the record."""
    lines = map(json.loads, recorded.ended().text.splitlines())
    return [line["request"]["json"] for line in lines if "request" in line]


async def test_secret_that_was_read_is_hidden_in_all_copies(api_server: ApiServer, recorded: Recorded) -> None:
    api_server.objects[f"{SECRETS}/one"] = secret(plain=PLAIN, odd=ODD, binary=BINARY)
    await recorded.send("GET", f"{SECRETS}/one")
    copies = config_map(
        plain=PLAIN,
        inside=f"url: postgres://user:{PLAIN}@host/db",
        odd=ODD,
        json=json.dumps({"password": ODD}),
        twice=json.dumps(json.dumps({"password": ODD})),
        encoded=encoded(PLAIN),
        header=encoded(f"user:{PLAIN}"),
        moved=encoded(f"u:{ODD}:x"),
        again=encoded(encoded(PLAIN)),
        binary=encoded(BINARY),
    )
    await recorded.send("POST", CONFIG_MAPS, copies)
    await recorded.send("GET", f"{CONFIG_MAPS}?labelSelector={quote('a=' + PLAIN)}")
    assert_hidden(recorded.ended(), PLAIN, ODD, BINARY)


async def test_written_or_patched_secret_is_hidden(recorded: Recorded) -> None:
    await recorded.send("POST", SECRETS, secret(plain=PLAIN))
    await recorded.send("POST", SECRETS, {**secret(), "stringData": {"odd": ODD}})
    await recorded.send("PUT", f"{SECRETS}/two", {**secret(), "stringData": {"x": "planted-by-put"}})
    merge = {"data": {"patched": encoded("planted-by-merge")}, "stringData": {"x": "planted-as-text"}}
    await recorded.send("PATCH", f"{SECRETS}/one", merge, Content_Type="application/merge-patch+json")
    operations = [
        {"op": "replace", "path": "/data/a", "value": encoded("planted-by-operation")},
        {"op": "replace", "path": "/stringData", "value": {"b": "planted-in-a-mapping"}},
        {"op": "replace", "path": "/metadata/annotations/c", "value": "planted-note"},
    ]
    await recorded.send("PATCH", f"{SECRETS}/one", operations, Content_Type="application/json-patch+json")
    apply = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: one}}\nstringData: {{y: planted-by-apply}}\n"  # noqa: F541
    await recorded.send("PATCH", f"{SECRETS}/one", apply.encode(), Content_Type="application/apply-patch+yaml")
    await recorded.send(
        "POST", CONFIG_MAPS, config_map(a="planted-by-operation planted-in-a-mapping planted-by-apply planted-note")
    )
    assert_hidden(recorded.ended(), PLAIN, ODD, "planted-by-put", "planted-by-merge", "planted-by-apply")


async def test_secrets_in_list_table_and_watch_are_hidden(api_server: ApiServer, recorded: Recorded) -> None:
    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            events = [{"type": "ADDED", "object": secret(a="planted-in-an-event")}] * 2
            text = "".join(json.dumps(event) + "\n" for event in events)
            return web.Response(text=text, content_type="application/json")
        if "Table" in request.headers.get("Accept", ""):
            rows = [{"cells": ["one"], "object": secret(a="planted-in-a-row")}]
            return web.json_response({"kind": "Table", "rows": rows})
        items = [{"metadata": {"name": "bare"}, "data": {"a": encoded("planted-in-a-list")}}]
        return web.json_response({"kind": "SecretList", "items": items})

    api_server.handlers["GET", SECRETS] = answer
    await recorded.send("GET", SECRETS)
    await recorded.send("GET", SECRETS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    await recorded.send("GET", f"{SECRETS}?watch=true")
    assert_hidden(recorded.ended(), "planted-in-a-list", "planted-in-a-row", "planted-in-an-event")


async def test_annotations_of_a_secret_are_hidden(api_server: ApiServer, recorded: Recorded) -> None:
    applied = json.dumps({**secret(old=OLD), "stringData": {"b": ODD}}) + "\n"
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied, "example.com/hint": "planted-in-a-hint"}
    found = secret(new=PLAIN)
    found["metadata"]["annotations"] = annotations
    api_server.objects[f"{SECRETS}/one"] = found
    await recorded.send("GET", f"{SECRETS}/one")
    await recorded.send("POST", CONFIG_MAPS, config_map(a=f"{OLD} planted-in-a-hint"))
    assert_hidden(recorded.ended(), PLAIN, OLD, ODD)


async def test_bodies_of_a_task_with_no_log_are_hidden(start_run: Callable[..., Run]) -> None:
    record = RunRecord(DEMO, PRIMARY, "7", Bodies(), 1 << 20)
    run = start_run(is_recorded=True, record=record.on_exchange)
    host = encoded("localhost").rstrip("=")
    plain = {"Authorization": f"Bearer {run.credentials.secret}.task-1.{host}"}
    marked = {"Authorization": f"Bearer {run.credentials.secret}.task-2.{host}.hidden"}
    recorded = Recorded(run, record)
    await recorded.send("POST", CONFIG_MAPS, config_map(a=PLAIN, short="pin"), **plain)
    await recorded.send("POST", CONFIG_MAPS, config_map(b=ODD), **marked)
    await recorded.send("POST", CONFIG_MAPS, config_map(c=f"and {PLAIN} and {ODD}"))
    record.on_event(RunEvent(name="runner_on_ok", task_id="task-1", host="localhost", censored=True))
    document = recorded.ended()
    assert_hidden(document, PLAIN, ODD)
    first = next(line for line in map(json.loads, document.text.splitlines()) if line["type"] == "exchange")
    assert first["task"] == "task-1"
    assert first["host"] == "localhost"
    assert first["request"]["json"]["kind"] == "ConfigMap"
    assert first["request"]["json"]["data"]["short"] != "pin"


async def test_given_secrets_are_hidden(recorded: Recorded) -> None:
    recorded.record.obj = PRIMARY | {"spec": {"password": "planted-in-the-spec"}}
    await recorded.send("POST", CONFIG_MAPS, config_map(a="planted-in-the-spec", b="planted-in-the-environment"))
    document = recorded.ended(secrets=("planted-in-the-spec", "planted-in-the-environment"), watch={"vars": {"a": 1}})
    assert_hidden(document, "planted-in-the-spec", "planted-in-the-environment")


async def test_secret_in_errors_events_and_tasks_is_hidden(api_server: ApiServer, recorded: Recorded) -> None:
    rejection = f"spec.a: Invalid value: {json.dumps(ODD)}: must not be {PLAIN}"
    api_server.respond("POST", CONFIG_MAPS, {"kind": "Status", "message": rejection}, 422)
    api_server.objects[f"{SECRETS}/one"] = secret(plain=PLAIN, odd=ODD)
    await recorded.send("GET", f"{SECRETS}/one")
    await recorded.send("POST", CONFIG_MAPS, config_map(a="1"))
    message = cut(f"{'x' * 2035} {PLAIN}")
    assert message.endswith("planted-P…")
    item = RunEvent(name="runner_item_on_failed", task_id="t", host="h", item=PLAIN, message=repr(ODD))
    recorded.record.on_event(item)
    recorded.record.on_event(RunEvent(name="runner_on_failed", task_id="t", host="h", task=PLAIN, message=message))
    assert_hidden(recorded.ended("failed", f"could not use {PLAIN}", ODD), PLAIN, ODD)


async def test_token_issued_by_the_api_server_is_hidden(api_server: ApiServer, recorded: Recorded) -> None:
    path = "/api/v1/namespaces/ns/serviceaccounts/default/token"
    api_server.respond("POST", path, {"kind": "TokenRequest", "status": {"token": "planted.token"}}, 201)
    await recorded.send("POST", path, {"kind": "TokenRequest", "spec": {}})
    assert_hidden(recorded.ended(), "planted.token")


async def test_secret_in_undecodable_format_is_omitted(recorded: Recorded) -> None:
    body = b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret" + PLAIN.encode()
    await recorded.send("POST", SECRETS, body, Content_Type="application/vnd.kubernetes.protobuf")
    document = recorded.ended()
    assert_hidden(document, PLAIN)
    assert "cannot be masked" in document.text


async def test_value_has_one_placeholder_of_its_length(api_server: ApiServer, recorded: Recorded) -> None:
    api_server.objects[f"{SECRETS}/one"] = secret(plain=PLAIN)
    await recorded.send("GET", f"{SECRETS}/one")
    await recorded.send("POST", CONFIG_MAPS, config_map(plain=PLAIN, encoded=encoded(PLAIN)))
    lines = [json.loads(line) for line in recorded.ended().text.splitlines()]
    _, read, write, end = lines
    copied = write["request"]["json"]["data"]
    assert len(copied["plain"]) == len(PLAIN)
    assert copied["plain"] in end["masked"]
    assert base64.b64decode(copied["encoded"]).decode() == copied["plain"]
    assert read["answer"]["json"]["data"]["plain"] == copied["encoded"]


async def test_two_records_have_different_placeholders(api_server: ApiServer, recorded: Recorded) -> None:
    api_server.objects[f"{SECRETS}/one"] = secret(plain=PLAIN)
    await recorded.send("GET", f"{SECRETS}/one")
    first, second = (json.loads(recorded.ended().text.splitlines()[-1])["masked"] for _ in range(2))
    assert set(first).isdisjoint(second)


async def test_secret_equal_to_a_word_of_the_format_does_not_break_the_record(
    api_server: ApiServer, recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "exchange namespace message contentType answer request succeeded changed configmaps object status result"
    api_server.objects[f"{SECRETS}/one"] = secret(**{f"key{word}": word for word in words.split()})
    await recorded.send("GET", f"{SECRETS}/one")
    await recorded.send("POST", CONFIG_MAPS, config_map(a="namespace"))
    item = RunEvent(name="runner_item_on_ok", task_id="t", host="h", item="message", message="request", changed=True)
    recorded.record.on_event(item)
    recorded.record.on_event(RunEvent(name="runner_on_ok", task_id="t", host="h", task="exchange", changed=True))
    served = ApiResource(
        GVK("", "v1", "ConfigMap"), "configmaps", namespaced=True, verbs=frozenset(), subresources=frozenset()
    )
    (tmp_path / "one.jsonl").write_text(recorded.ended(resources=(served,)).text)
    capsys.readouterr()
    assert main(["record", "show", str(tmp_path / "one.jsonl")]) == 0
    record = read_record(tmp_path / "one.jsonl")
    assert [(each["verb"], each["resource"]) for each in record.exchanges] == [
        ("get", "secrets"),
        ("create", "configmaps"),
    ]
    assert record.exchanges[1]["request"]["json"]["data"]["a"] in record.end["masked"]
    assert (record.end["outcome"], record.tasks[0]["result"], record.tasks[0]["items"][0]["result"]) == (
        "succeeded",
        "changed",
        "changed",
    )
    assert record.exchanges[1]["path"] == CONFIG_MAPS
    assert "a: namespace" not in capsys.readouterr().out


async def test_secret_starting_with_the_end_of_an_escape_sequence_does_not_break_the_record(
    api_server: ApiServer, recorded: Recorded, tmp_path: Path
) -> None:
    api_server.objects[f"{SECRETS}/one"] = secret(a="nplanted-one", b="1planted-two")
    await recorded.send("GET", f"{SECRETS}/one")
    await recorded.send(
        "POST", CONFIG_MAPS, config_map(a="nplanted-one, 1planted-two", b="\nplanted-one\x01planted-two")
    )
    (tmp_path / "one.jsonl").write_text(recorded.ended().text)
    record = read_record(tmp_path / "one.jsonl")
    copied = record.exchanges[1]["request"]["json"]["data"]
    assert "planted" not in copied["a"]
    assert len(copied["a"]) == len("nplanted-one, 1planted-two")


@pytest.mark.parametrize(
    "spelled",
    [
        html.escape,
        lambda value: html.escape(value, quote=False),
        shlex.quote,
        lambda value: re.sub("%..", lambda match: match[0].lower(), quote(value)),
        lambda value: yaml.safe_dump({"a": value}, width=20),
        lambda value: json.dumps({"a": yaml.safe_dump({"b": {"c": value}}, width=20)}),
        lambda value: yaml.safe_dump({"a": f"{value}é"}, width=20),
        lambda value: encoded(value).rstrip("="),
        lambda value: encoded(value).replace("+", "-").replace("/", "_").rstrip("="),
    ],
    ids=["XML", "XML text", "shell", "URL", "YAML", "YAML in JSON", "quoted YAML", "base64", "base64url"],
)
@pytest.mark.parametrize("value", [PLAIN, SPACED, "planted <it's & that's>??>", "planted one\nplanted two\n"])
async def test_secret_is_hidden_in_other_spellings(
    spelled: Callable[[str], str], value: str, recorded: Recorded, api_server: ApiServer
) -> None:
    await read(recorded, api_server, value)
    await recorded.send("POST", CONFIG_MAPS, config_map(a=spelled(value)))
    assert_hidden(recorded.ended())


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("nested", [str, lambda text: json.dumps({"a": text})], ids=["plain", "in JSON"])
@pytest.mark.parametrize("end", ["", "\n"], ids=["alone", "with a line end"])
async def test_secret_is_hidden_in_base64_broken_into_lines(
    width: int, nested: Callable[[str], str], end: str, recorded: Recorded, api_server: ApiServer
) -> None:
    """As ``base64`` and ``openssl`` print it."""
    await read(recorded, api_server, SPACED)
    text = encoded(SPACED + end)
    broken = "\n".join(text[start : start + width] for start in range(0, len(text), width))
    await recorded.send("POST", CONFIG_MAPS, config_map(a=nested(broken)))
    [body] = bodies(recorded)
    shown = base64.b64decode(re.sub(r"\\n|\s|[^\w+/=]|\ba\b", "", body["data"]["a"]))
    assert len(shown) == len(SPACED + end)
    assert b"planted" not in shown


async def test_secret_of_digits_is_hidden_as_a_number(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, DIGITS)
    await recorded.send("POST", CONFIG_MAPS, {"kind": "Demo", "spec": {"pin": int(DIGITS), "size": 3}})
    record = recorded.ended()
    assert DIGITS not in record.text
    assert bodies(recorded)[0]["spec"]["size"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"stringData": {"pin": int(DIGITS)}},
        {"data": PLAIN},
        {"stringData": [PLAIN]},
        {"datas": {"a": PLAIN}},
        {"spec": {"pin": int(DIGITS), "text": PLAIN}},
        {"metadata": {"name": "one", "annotations": PLAIN}},
        {"metadata": {"name": "one", "annotations": {"mykubernetes.io/password": PLAIN}}},
    ],
    ids=lambda body: json.dumps(body)[:30],
)
async def test_secret_rejected_by_the_api_server_is_hidden(body: RawObject, recorded: Recorded) -> None:
    await recorded.send("POST", SECRETS, {"apiVersion": "v1", "kind": "Secret", **body})
    document = recorded.ended()
    assert_hidden(document)
    assert DIGITS not in document.text


async def test_binary_text_in_yaml_is_hidden(recorded: Recorded) -> None:
    body = f"kind: Secret\nstringData: {{a: !!binary {encoded(PLAIN)}}}\ndata: {{b: 2026-01-01, c: !!set {{{PLAIN}}}}}"
    await recorded.send("PATCH", f"{SECRETS}/one", body.encode(), Content_Type="application/apply-patch+yaml")
    await recorded.send("POST", CONFIG_MAPS, config_map(a=PLAIN))
    assert_hidden(recorded.ended(), PLAIN)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": encoded(PLAIN)},
        {"op": "add", "path": "/metadata", "value": {"name": "one", "annotations": {"hint": PLAIN}}},
        {"op": "replace", "path": "", "value": {"data": {"a": encoded(PLAIN)}}},
        {"op": "add", "path": "/data", "value": {"a": encoded(PLAIN)}},
        {"op": "add", "path": "/dat", "value": {"a": PLAIN}},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
async def test_json_patch_of_a_secret_is_hidden(operation: RawObject, recorded: Recorded) -> None:
    await recorded.send("PATCH", f"{SECRETS}/one", [operation], Content_Type="application/json-patch+json")
    document = recorded.ended()
    assert_hidden(document, PLAIN)
    assert bodies(recorded)[0][0]["path"] == operation["path"]


async def test_secret_in_any_part_of_a_path_is_hidden(recorded: Recorded, api_server: ApiServer) -> None:
    value = "planted/in a path"
    await read(recorded, api_server, value, "planted-word")
    for path in ("/api/v1/planted-word", "/apis/planted-word/v1/a", f"/api/v1/a/b/proxy/{quote(value).lower()}"):
        await recorded.send("GET", path)
    await recorded.send("GET", f"/metrics?{quote(value, safe='')}=planted-word")
    assert_hidden(recorded.ended(), value)


async def test_impersonated_user_is_hidden(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, "planted-user")
    await recorded.send("GET", CONFIG_MAPS, Impersonate_User="planted-user")
    assert_hidden(recorded.ended())


async def test_command_of_a_task_with_no_log_is_hidden(start_run: Callable[..., Run], recorded: Recorded) -> None:
    record = recorded.record
    run = start_run(is_recorded=True, record=record.on_exchange)
    marked = {"Authorization": f"Bearer {run.credentials.secret}.task-2.{encoded('localhost').rstrip('=')}.hidden"}
    hidden = Recorded(run, record)
    query = "container=main&command=login&command=planted-password&stdout=true"
    await hidden.send("GET", f"/api/v1/namespaces/ns/pods/one/exec?{query}", **marked)
    await hidden.send("POST", CONFIG_MAPS, {"kind": "Demo", "spec": {"pin": int(DIGITS)}}, **marked)
    document = hidden.ended()
    assert_hidden(document)
    assert DIGITS not in document.text
    line = json.loads(document.text.splitlines()[1])
    assert ["container", "main"] in line["query"]
    assert [name for name, _ in line["query"]] == ["container", "command", "command", "stdout"]


async def test_response_other_than_discovery_is_part_of_the_record(recorded: Recorded, api_server: ApiServer) -> None:
    api_server.respond("GET", "/custom", {"password": "planted-elsewhere"})
    await read(recorded, api_server, "planted-elsewhere")
    await recorded.send("GET", "/custom")
    document = recorded.ended()
    assert_hidden(document)
    assert document.discovery == {}


async def test_secret_in_names_of_tasks_and_items_is_hidden(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, PLAIN)
    record = recorded.record
    started = RunEvent(name="playbook_on_task_start", task_id="t", task=f"Log in with {PLAIN}")
    item = RunEvent(name="runner_item_on_ok", task_id="t", host="h", item=json.dumps({"password": PLAIN}))
    record.on_event(started)
    record.on_event(item)
    record.on_event(RunEvent(name="runner_on_ok", task_id="t", host="h"))
    assert_hidden(recorded.ended())


async def test_access_set_has_no_secret_as_a_name(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, "planted-name", "planted-user")
    await recorded.send("GET", f"{CONFIG_MAPS}/planted-name")
    await recorded.send("GET", "/api/v1/namespaces/planted-name/configmaps", Impersonate_User="planted-user")
    role = {"roleRef": {"kind": "ClusterRole", "name": "planted-name"}}
    await recorded.send("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings", role)
    document = recorded.ended()
    access = AccessSet(DEMO, "/r")
    access.add(recorded.record, document.hides)
    written = json.dumps(access.to_json({}))
    assert "planted" not in written
    assert {(each.resource, each.name) for each in access.usages} >= {("configmaps", ANY), ("secrets", "one")}


async def test_secret_of_many_lines_does_not_delay_a_record(recorded: Recorded, api_server: ApiServer) -> None:
    """A bundle of certificates has thousands of lines, and each may stand alone."""
    bundle = "\n".join(encoded(f"planted line {number:05} of a certificate authority") for number in range(4000))
    await read(recorded, api_server, bundle)
    await recorded.send("POST", CONFIG_MAPS, config_map(a=bundle, b="x" * 500_000))
    started = time.process_time()
    recorded.ended()
    assert time.process_time() - started < 3.0


async def test_many_secrets_do_not_delay_a_record(recorded: Recorded, api_server: ApiServer) -> None:
    """The text is searched once, not once for each form of each line of each certificate and key."""

    def lines(kind: str, number: int, count: int) -> str:
        body = (encoded(f"planted {kind} {number:03} {line:03} {'x' * 24}") for line in range(count))
        return "\n".join((f"-----BEGIN {kind}-----", *body, f"-----END {kind}-----", ""))

    pairs = [{"tls.crt": lines("CERTIFICATE", each, 17), "tls.key": lines("KEY", each, 25)} for each in range(80)]
    api_server.respond("GET", SECRETS, {"kind": "SecretList", "items": [secret(**pair) for pair in pairs]})
    await recorded.send("GET", SECRETS)
    started = time.process_time()
    document = recorded.ended()
    assert time.process_time() - started < 6.0
    assert_hidden(document)


async def test_reference_to_a_secret_is_shown(recorded: Recorded) -> None:
    """A Secret that is a primary owns what its role makes; what identifies it is no secret."""
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "owned-by-it", "uid": "uid-of-owner", "controller": True}
    sent = config_map(a="b")
    sent["metadata"]["ownerReferences"] = [owner]
    sent["about"] = {"kind": "Secret", "namespace": "the-namespace", "name": "owned-by-it", "fieldPath": "data.planted"}
    await recorded.send("POST", CONFIG_MAPS, sent)
    (body,) = bodies(recorded)
    assert body["metadata"]["ownerReferences"] == [owner]
    assert body["about"] == sent["about"]


async def test_secret_without_metadata_is_hidden(recorded: Recorded) -> None:
    await recorded.send("POST", CONFIG_MAPS, {"kind": "Secret", "name": "no-metadata", "stringData": {"a": PLAIN}})
    assert_hidden(recorded.ended())
