"""Pages of objects and runs: their contents, escaping of hostile strings, and masking of secrets."""

import base64
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import ReferenceType, Trigger
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.dashboard.html import object_path, run_path
from rolecall.runner.dashboard.server import dashboard_application
from rolecall.runner.dashboard.views import kind_id
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.record.run_record import Ending
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from tests.support.things import THING
from tests.unit.runner.dashboard.conftest import OPEN, Shown
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange

PATH = object_path(kind_id(THING), "default", "one")
RUN = run_path(kind_id(THING), "default", "one", "7")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PLANTED = "planted-Pa55word"
SINCE = "2026-11-22T10:00:00Z"


def failure(message: str) -> RawObject:
    entry = {"type": "Failure", "status": "True", "reason": "Failed", "lastTransitionTime": SINCE, "message": message}
    return {"conditions": [entry]}


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an element."""
        self.found.append((tag, dict(attrs)))


def check_policy(text: str) -> None:
    """Assert that a page has nothing that its policy forbids."""
    found = Elements(text).found
    for tag, attributes in found:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
        assert tag != "style"
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        for name in ("src", "href"):
            assert (attributes.get(name) or "/").startswith(("/", "#", "?"))


@pytest.fixture
def failed(shown: Shown) -> Shown:
    """Return an object whose run has read a Secret, written its value, and failed with it."""
    encoded = base64.b64encode(PLANTED.encode()).decode()
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"password": encoded}}
    message = f"cannot use {PLANTED}"
    record = shown.add_run(
        shown.bench.tell(THING, status=failure(message)),
        exchange("GET", "/api/v1/namespaces/ns/secrets/s", None, secret),
        exchange("POST", CONFIG_MAPS, config_map(PLANTED), config_map(PLANTED), 201),
        ending=Ending("failed", Outcome("failed", failures=(TaskFailure("Write", "", message),)), failure(message)),
    )
    record.on_event(RunEvent(name="runner_on_failed", task="Fail", task_id="task-2", host="localhost", message=message))
    return shown


@pytest.mark.parametrize("path", ["/", PATH, "/?format=json"])
async def test_list_shows_failure_with_masked_message(failed: Shown, path: str) -> None:
    """The state in the list comes with its reason, whose secret values are masked as in a record."""
    (record,) = failed.recorder.memory.runs(THING, ObjectKey("default", "one"))
    await failed.recorder.finish(failed.kind.watched.watch, record, record.ending)
    _, text = await failed.get(path)
    assert "cannot use" in text
    assert "planted" not in text


@pytest.mark.parametrize("path", ["/", PATH, RUN, f"{PATH}?part=polled", "/?format=json", f"{PATH}?format=json"])
async def test_no_page_shows_a_secret(failed: Shown, path: str) -> None:
    status, text = await failed.get(path)
    assert status == 200
    assert "planted" not in text
    assert base64.b64encode(PLANTED.encode()).decode() not in text


async def test_message_is_masked_as_in_the_record(failed: Shown) -> None:
    (condition,) = (await failed.json(PATH))["conditions"]
    assert re.fullmatch(r"cannot use [A-Za-z0-9]{16}", condition["message"]), condition["message"]


async def test_message_without_record_is_not_shown(shown: Shown) -> None:
    shown.bench.tell(THING, status=failure(PLANTED))
    (condition,) = (await shown.json(PATH))["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == ("Failure", "Failed", "")


async def test_run_shows_what_was_pruned(shown: Shown) -> None:
    texts = {"deleted": ("Service ns/<b>",), "reasons": ("why not",)}
    ending = Ending("succeeded", Outcome("successful"), pruning=Pruning(texts=texts))
    shown.add_run(shown.bench.tell(THING), ending=ending)
    _, text = await shown.get(RUN)
    assert "<dt>Prune: deleted</dt><dd>Service ns/&lt;b&gt;</dd>" in text
    assert "<dt>Prune: reasons</dt><dd>why not</dd>" in text


async def test_run_shows_the_manifests_of_deleted_objects_with_secrets_masked(shown: Shown) -> None:
    encoded = base64.b64encode(PLANTED.encode()).decode()
    metadata = {"name": "old", "namespace": "ns", "uid": "u", "annotations": {"note": HOSTILE}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "status": {}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": encoded}}
    pruning = Pruning(texts={"deleted": ("Service ns/old", "Secret s")}, manifests=(service, secret))
    shown.add_run(shown.bench.tell(THING), ending=Ending("succeeded", Outcome("successful"), pruning=pruning))
    one, two = (await shown.json(RUN))["manifests"]
    assert (one["title"], two["title"]) == ("Service ns/old", "Secret s")
    assert "kind: Service" in one["lines"]
    assert not any("uid" in line or "status" in line for line in one["lines"])
    _, text = await shown.get(RUN)
    assert "<summary>Service ns/old</summary>" in text
    assert not [each for each in (PLANTED, encoded, HOSTILE) if each in text]
    check_policy(text)


async def test_run_has_requests_by_task_and_writes_as_diffs(failed: Shown) -> None:
    view = await failed.json(RUN)
    assert [task["name"] for task in view["tasks"]] == ["Write", "Fail"]
    read, written = view["tasks"][0]["requests"]
    assert (read["verb"], written["verb"], written["status"]) == ("get", "create", 201)
    assert "+data:" in written["effects"]
    assert 0 <= written["span"]["start"] < 1000
    assert view["failures"]
    assert "  reason: Failed" in view["status"]


async def test_run_dropped_from_memory_has_no_page_and_no_link(failed: Shown) -> None:
    failed.recorder.memory.forget(THING, failed.bench.controller.primaries.store.get(_one(failed)).key)  # type: ignore[union-attr] # it is there
    assert (await failed.get(RUN))[0] == 404
    assert RUN not in (await failed.get(PATH))[1]
    assert "None since" not in (await failed.get(PATH))[1]


def _one(shown: Shown) -> Any:
    (note,) = shown.kind.notes
    return note.key


async def test_earlier_runs_have_pages(shown: Shown) -> None:
    obj = shown.bench.tell(THING)
    for ident in "1234":
        shown.add_run(obj, ident=ident)
    runs = (await shown.json(PATH))["runs"]
    assert [(run["id"], run["hasRecord"]) for run in runs] == [("4", True), ("3", True), ("2", True), ("1", False)]
    assert (await shown.json(run_path(kind_id(THING), "default", "one", "2")))["id"] == "2"


async def test_object_lists_its_triggers(shown: Shown) -> None:
    deployments = Trigger(GVK("apps", "v1", "Deployment"), ReferenceType.OWNER)
    watch = shown.kind.watched.watch
    object.__setattr__(watch, "triggers", (deployments,))
    shown.bench.tell(THING)
    triggers = (await shown.json(PATH))["triggers"]
    assert [trigger["what"] for trigger in triggers] == ["This Thing", "Deployment (apps/v1)"]


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "<b>", ""])
async def test_invalid_times_of_conditions_break_no_page(shown: Shown, since: str) -> None:
    bad = {"type": "Failure", "status": "True", "reason": "Failed", "lastTransitionTime": since}
    for name in ("one", "two"):
        shown.add_run(shown.bench.tell(THING, name=name, status={"conditions": [bad]}), ending=Ending("failed"))
    for path in ("/", PATH, RUN, "/?format=json"):
        assert (await shown.get(path))[0] == 200, path


@pytest.mark.parametrize("part", ["name", "namespace", "reason", "cause", "task", "target", "effect", "query"])
async def test_hostile_strings_are_escaped(shown: Shown, part: str) -> None:
    def text(name: str) -> str:
        return HOSTILE if name == part else name

    status = {"conditions": [{"type": "Failure", "status": "True", "reason": text("reason"), "lastTransitionTime": ""}]}
    obj = shown.bench.tell(THING, name=text("name"), namespace=text("namespace"), status=status)
    answer = config_map(text("effect"))
    record = shown.add_run(obj, exchange("POST", f"{CONFIG_MAPS}?x={text('target')}", answer, answer, 201))
    record.causes = (text("cause"),)
    record.on_event(RunEvent(name="runner_on_ok", task=text("task"), task_id="task-3", host=text("task")))
    shown.recorder.history.add(record)
    kind = kind_id(THING)
    paths = [
        f"/?q={HOSTILE if part == 'query' else ''}",
        object_path(kind, text("namespace"), text("name")),
        run_path(kind, text("namespace"), text("name"), "7"),
    ]
    seen = ""
    for path in paths:
        code, page = await shown.get(path)
        assert code == 200, path
        check_policy(page)
        assert not [tag for tag, _ in Elements(page).found if tag == "img"]
        seen += page
    assert "&lt;script&gt;" in seen


async def test_why_it_ran_is_one_line_with_all_causes_on_demand(shown: Shown) -> None:
    record = shown.add_run(shown.bench.tell(THING))
    record.causes = ("Thing default/one: spec.size (generation 2)", "read Secret default/password changed")
    shown.recorder.history.add(record)
    page = (await shown.get("/"))[1]
    assert '<summary><bdi>spec.size (generation 2)</bdi> <span class="minor">+1</span></summary>' in page
    assert "<li><bdi>Thing default/one: spec.size (generation 2)</bdi></li>" in page
    assert "<li><bdi>read Secret default/password changed</bdi></li>" in page


async def test_causes_of_the_next_run_are_one_line_with_all_on_demand(shown: Shown) -> None:
    shown.bench.tell(THING)
    cause = f"ConfigMap default/settings: {', '.join(f'data.key-{number}' for number in range(30))}"
    shown.bench.controller.queue.add(ObjectKey("default", "one"), Cause(cause))
    for path in ("/", PATH):
        page = (await shown.get(path))[1]
        assert '<span class="minor">(<bdi>created</bdi> +1)</span></summary>' in page
        assert f"<li><bdi>{cause}</bdi></li>" in page


async def test_long_message_is_one_line_with_the_whole_text_on_demand(shown: Shown) -> None:
    message = "cannot reach the database " * 10
    shown.add_run(shown.bench.tell(THING), ending=Ending("failed", Outcome("failed")), message=message)
    page = (await shown.get("/"))[1]
    assert '<td colspan="5">' in page
    assert f"<summary><bdi>{message[:180]}" in page
    assert f"<p><bdi>{message}</bdi></p></details>" in page


async def test_page_of_a_failing_object_starts_with_the_whole_message(failed: Shown) -> None:
    page = (await failed.get(PATH))[1]
    assert re.search(r'<pre class="failure"><bdi>Task &#39;Write&#39;: cannot use [A-Za-z0-9]{16}</bdi></pre>', page)
    parts = ['<pre class="failure">', '<dl class="facts">', 'id="conditions-title"', 'id="runs-title"']
    assert sorted(parts, key=page.index) == parts


async def test_page_of_a_failed_run_starts_with_the_failed_task(failed: Shown) -> None:
    page = (await failed.get(RUN))[1]
    parts = ["Failed task</h2>", "<strong>Fail</strong>", "cannot use", '<dl class="facts">', "<strong>Write</strong>"]
    assert sorted(parts, key=page.index) == parts
    assert page.count('<pre class="failure">') == 1


async def test_failure_of_the_run_itself_is_shown_with_its_failed_task(failed: Shown) -> None:
    (record,) = failed.recorder.memory.runs(THING, ObjectKey("default", "one"))
    limit = TaskFailure("", "", "the run took longer than 1 s")
    record.ending = Ending("failed", Outcome("timeout", failures=(*record.ending.run.failures, limit)))
    page = (await failed.get(RUN))[1]
    assert '<pre class="failure">the run took longer than 1 s</pre>' in page
    assert page.count('<pre class="failure">') == 2


async def test_conditions_with_one_message_are_together(shown: Shown) -> None:
    text = "Task 'Limit it': the quota is exceeded"
    texts = {"Failure": text, "Running": "short", "Ready": text, "Reconciling": f"It will be retried: {text}"}
    items = [
        {"type": kind, "status": "True", "reason": "R", "message": message, "lastTransitionTime": SINCE}
        for kind, message in texts.items()
    ]
    ending = Ending("failed", Outcome("failed"), {"conditions": items})
    shown.add_run(shown.bench.tell(THING, status={"conditions": items}), ending=ending)
    page = " ".join(re.sub("<[^>]*>", " ", (await shown.get(PATH))[1].split("Conditions</h2>")[1]).split())
    assert page.count("the quota is exceeded") == 1
    order = ["Failure True", "Ready True", "Reconciling True", "the quota is exceeded", "Running True", "short"]
    assert sorted(order, key=page.index) == order
    assert "just now" in page
    assert SINCE not in page


async def test_filters_act_without_a_button(shown: Shown) -> None:
    shown.bench.tell(THING)
    page = (await shown.get("/?state=pending&q=one"))[1]
    (form,) = [attributes for tag, attributes in Elements(page).found if tag == "form"]
    assert (form["hx-get"], form["hx-target"], form["hx-select"]) == ("/", "#polled", "#polled")
    assert "change" in (form["hx-trigger"] or "")
    assert "input delay" in (form["hx-trigger"] or "")
    assert '<noscript><button type="submit">Show</button></noscript>' in page
    assert 'data-address="/?state=pending&amp;q=one"' in page


async def test_pages_obey_their_policy(failed: Shown) -> None:
    for path in ("/", PATH, RUN, "/kinds/No.v1/a/b"):
        check_policy((await failed.get(path))[1])


async def test_unchanged_part_is_not_sent_again(failed: Shown) -> None:
    async with TestClient(TestServer(dashboard_application(failed.sources, OPEN))) as client:
        first = await client.get(f"{PATH}?part=polled")
        tag = first.headers["ETag"]
        text = await first.text()
        assert "&#34;" in text or tag.strip('"') in text
        again = await client.get(f"{PATH}?part=polled", headers={"If-None-Match": tag})
        assert (again.status, await again.read()) == (304, b"")
        failed.bench.tell(THING, "MODIFIED", status={})
        assert (await client.get(f"{PATH}?part=polled", headers={"If-None-Match": tag})).status == 200


async def test_page_of_deleted_object_reloads(failed: Shown) -> None:
    failed.bench.tell(THING, "DELETED")
    async with TestClient(TestServer(dashboard_application(failed.sources, OPEN))) as client:
        part = await client.get(f"{PATH}?part=polled")
        assert (part.status, part.headers.get("HX-Refresh")) == (404, "true")
        assert "There is no such object" in await (await client.get(PATH)).text()
        assert (await client.get(f"{PATH}?format=json")).status == 404


async def test_pages_only_use_own_static_files(failed: Shown) -> None:
    page = (await failed.get("/"))[1]
    files = {attributes.get("src") or attributes.get("href") for _, attributes in Elements(page).found}
    static = [path for path in files if path and path.startswith("/static/")]
    assert len(static) == 4
    for path in static:
        assert (await failed.get(path))[0] == 200
    assert (await failed.get("/static/htmx.LICENSE"))[0] == 200
    assert (await failed.get("/static/..%2Fserver.py"))[0] == 404


async def test_replica_without_synced_informers_is_reported(shown: Shown) -> None:
    shown.bench.manager.dispatcher.has_started = False
    shown.bench.tell(THING)
    assert (await shown.json("/"))["rows"][0]["waitsFor"]["text"].startswith("the informers")
    assert "still listing" in (await shown.json("/"))["replica"]["text"]


def test_dashboard_is_off_by_default() -> None:
    assert Settings().has_ui is False
    assert Settings(ui_bind_address="127.0.0.1:8090").has_ui is True
