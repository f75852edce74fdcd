"""Secrets in places and spellings that nobody thinks of first: each is planted, and must not be in the record."""

import base64
import html
import json
import re
import shlex
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from aiohttp import web

from rolecall.kube.references import RawObject
from rolecall.runner.record.access import ANY, AccessSet
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.events import RunEvent
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import DEMO, Run
from tests.unit.runner.record.test_planted_secrets import (
    CONFIG_MAPS,
    PLAIN,
    SECRETS,
    Recorded,
    assert_hidden,
    config_map,
    encoded,
    recorded,
    secret,
)

__all__ = ["recorded"]

DIGITS = "90210471"
SPACED = " ".join(f"planted-{number}" for number in range(12))


async def read(recorded: Recorded, api_server: ApiServer, *values: str) -> None:
    """Let the run read a Secret with these values."""
    api_server.objects[f"{SECRETS}/one"] = secret(**{f"key{number}": value for number, value in enumerate(values)})
    await recorded.send("GET", f"{SECRETS}/one")


def bodies(recorded: Recorded) -> list[Any]:
    """Return the bodies of all requests as they stand in the record."""
    lines = map(json.loads, recorded.ended().text.splitlines())
    return [line["request"]["json"] for line in lines if "request" in line]


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
async def test_a_secret_is_hidden_in_other_spellings(
    spelled: Callable[[str], str], value: str, recorded: Recorded, api_server: ApiServer
) -> None:
    await read(recorded, api_server, value)
    await recorded.send("POST", CONFIG_MAPS, config_map(a=spelled(value)))
    assert_hidden(recorded.ended())


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("nested", [str, lambda text: json.dumps({"a": text})], ids=["plain", "in JSON"])
@pytest.mark.parametrize("end", ["", "\n"], ids=["alone", "with a line end"])
async def test_a_secret_is_hidden_in_base64_that_is_broken_into_lines(
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


async def test_a_secret_of_digits_is_hidden_where_it_is_a_number(recorded: Recorded, api_server: ApiServer) -> None:
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
async def test_a_secret_that_the_api_server_refuses_is_hidden(body: RawObject, recorded: Recorded) -> None:
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
async def test_a_json_patch_of_a_secret_is_hidden(operation: RawObject, recorded: Recorded) -> None:
    await recorded.send("PATCH", f"{SECRETS}/one", [operation], Content_Type="application/json-patch+json")
    document = recorded.ended()
    assert_hidden(document, PLAIN)
    assert bodies(recorded)[0][0]["path"] == operation["path"]


async def test_a_secret_in_a_path_is_hidden_whatever_it_stands_for(recorded: Recorded, api_server: ApiServer) -> None:
    value = "planted/in a path"
    await read(recorded, api_server, value, "planted-word")
    for path in ("/api/v1/planted-word", "/apis/planted-word/v1/a", f"/api/v1/a/b/proxy/{quote(value).lower()}"):
        await recorded.send("GET", path)
    await recorded.send("GET", f"/metrics?{quote(value, safe='')}=planted-word")
    assert_hidden(recorded.ended(), value)


async def test_what_acts_as_somebody_else_is_hidden(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, "planted-user")
    await recorded.send("GET", CONFIG_MAPS, Impersonate_User="planted-user")
    assert_hidden(recorded.ended())


async def test_the_command_of_a_task_with_no_log_is_hidden(start_run: Callable[..., Run], recorded: Recorded) -> None:
    record = recorded.record
    run = start_run(on_exchange=record.on_exchange)
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


async def test_an_answer_that_is_no_discovery_is_part_of_the_record(recorded: Recorded, api_server: ApiServer) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"password": "planted-elsewhere"})

    api_server.handlers["GET", "/custom"] = answer
    await read(recorded, api_server, "planted-elsewhere")
    await recorded.send("GET", "/custom")
    document = recorded.ended()
    assert_hidden(document)
    assert document.discovery == {}


async def test_names_of_tasks_items_and_statistics_are_hidden(recorded: Recorded, api_server: ApiServer) -> None:
    await read(recorded, api_server, PLAIN)
    record = recorded.record
    started = RunEvent(name="playbook_on_task_start", task_id="t", task=f"Log in with {PLAIN}")
    item = RunEvent(name="runner_item_on_ok", task_id="t", host="h", item=json.dumps({"password": PLAIN}))
    record.on_event(started)
    record.on_event(item)
    record.on_event(RunEvent(name="runner_on_ok", task_id="t", host="h"))
    assert_hidden(recorded.ended())


async def test_an_access_set_has_no_secret_for_a_name(recorded: Recorded, api_server: ApiServer) -> None:
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


async def test_a_secret_of_many_lines_does_not_keep_a_record_waiting(
    recorded: Recorded, api_server: ApiServer, record_seconds: Callable[[RunRecord], float]
) -> None:
    """A bundle of certificates has thousands of lines, and each may stand alone."""
    bundle = "\n".join(encoded(f"planted line {number:05} of a certificate authority") for number in range(4000))
    await read(recorded, api_server, bundle)
    await recorded.send("POST", CONFIG_MAPS, config_map(a=bundle, b="x" * 500_000))
    assert record_seconds(recorded.record) < 3.0


@pytest.fixture
def record_seconds(recorded: Recorded) -> Callable[[RunRecord], float]:
    """Return what tells how much processor time the document of a record takes."""

    def seconds(_: RunRecord) -> float:
        started = time.process_time()
        recorded.ended()
        return time.process_time() - started

    return seconds


async def test_a_reference_to_a_secret_is_not_one(recorded: Recorded) -> None:
    """A Secret that is a primary owns what its role makes; what identifies it is no secret."""
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "owned-by-it", "uid": "uid-of-owner", "controller": True}
    sent = config_map(a="b")
    sent["metadata"]["ownerReferences"] = [owner]
    sent["about"] = {"kind": "Secret", "namespace": "the-namespace", "name": "owned-by-it", "fieldPath": "data.planted"}
    await recorded.send("POST", CONFIG_MAPS, sent)
    (body,) = bodies(recorded)
    assert body["metadata"]["ownerReferences"] == [owner]
    assert body["about"] == sent["about"]


async def test_a_secret_without_metadata_is_still_one(recorded: Recorded) -> None:
    await recorded.send("POST", CONFIG_MAPS, {"kind": "Secret", "name": "no-metadata", "stringData": {"a": PLAIN}})
    assert_hidden(recorded.ended())
