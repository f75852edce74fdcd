"""The dashboard of an operator whose 35 objects mostly fail for one reason: what is wrong, and what to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, FloatRect, expect

from rolecall.kube.quantities import time_text
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.work_queue import Backoff, Cause
from rolecall.runner.dashboard.commands import Place
from rolecall.runner.dashboard.server import dashboard_application
from rolecall.runner.record.run_record import Ending
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from tests.browser.test_dashboard import WINDOWS, look
from tests.browser.windows import window
from tests.unit.conftest import cluster
from tests.unit.runner.dashboard.conftest import OPEN, Shown, shown_operator
from tests.unit.runner.dashboard.test_objects import Follower
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange

__all__ = ["cluster"]

TEAM = GVK("example.com", "v1", "Team")
NAMES = (
    *(
        "accounts",
        "android",
        "apps",
        "audit",
        "billing",
        "build",
        "cart",
        "catalog",
        "chat",
        "checkout",
        "content",
        "data",
    ),
    *(
        "delivery",
        "design",
        "docs",
        "editor",
        "events",
        "fraud",
        "growth",
        "identity",
        "insights",
        "ios",
        "legal",
        "loyalty",
    ),
    *("mail", "media", "partners", "payments", "platform", "pricing", "reviews", "search", "shipping", "stock", "web"),
)
READY, OTHER = "platform", "build"
VALIDATION = "Validating arguments against arg spec 'main' - Set up the namespace of a team"
INVALID = """
Validation of arguments failed:
quota.storage. Supported parameters include: cpu, memory, persistentVolumes, pods.
""".strip()
FORBIDDEN = 'networkpolicies "default-deny" is forbidden: exceeded quota: build, requested: 1, used: 5, limited: 5'


def condition(kind: str, status: str, reason: str, message: str, at: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


class Fleet:
    """An operator with teams, of which all but one fail."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        shown.bench.manager.has_settled = True
        shown.bench.controller.queue._backoff = Backoff(60, 3600)
        self.now = datetime.fromtimestamp(shown.bench.clock.now(), UTC)
        for number, name in enumerate(NAMES):
            if name == READY:
                self.succeed(name)
            elif name == OTHER:
                self.fail(name, number, TaskFailure("Isolate the namespace", "", FORBIDDEN), 5)
            else:
                self.fail(name, number, TaskFailure(VALIDATION, "", INVALID), 3)

    def succeed(self, name: str) -> None:
        """Add a team whose run has succeeded."""
        at = time_text((self.now - timedelta(hours=3)).timestamp())
        reports = [("Successful", "True", "Successful"), ("Ready", "True", "RunSucceeded")]
        status = {"conditions": [condition(*each, "The last run succeeded", at) for each in reports]}
        obj = self.shown.bench.tell(TEAM, name=name, namespace="", generation=1, status=status)
        self.take(name)
        self.shown.add_run(obj, ident=f"1{len(name)}", started=self.now - timedelta(hours=3))
        self.shown.bench.controller.queue.add_after(ObjectKey("", name), 3600, Cause("period"))

    def fail(self, name: str, number: int, failure: TaskFailure, runs: int) -> None:
        """Add a team whose runs have failed since it was changed."""
        since = self.now - timedelta(minutes=20, seconds=number)
        text, at = str(failure), time_text(since.timestamp())
        items = [
            condition("Running", "False", "Running", "Running reconciliation", at),
            condition("Failure", "True", "Failed", text, at),
            condition("Successful", "False", "Failed", "", at),
            condition("Ready", "False", "RunFailed", text, at),
            condition("Reconciling", "False", "RunFailed", "", at),
            condition("Stalled", "True", "RunFailed", text, time_text(since.timestamp() + 31)),
        ]
        obj = self.shown.bench.tell(TEAM, name=name, namespace="", generation=2, status={"conditions": items})
        self.take(name)
        for attempt in range(runs):
            ending = Ending("failed", Outcome("failed", failures=(failure,), duration_seconds=0.3), obj["status"])
            causes = (f"retry {attempt}",) if attempt else (f"Team {name}: spec.quota.storage (generation 2)",)
            started = since + timedelta(minutes=4 * attempt)
            writes = [exchange("POST", CONFIG_MAPS, config_map("a"), config_map("a"), 201)] if name == OTHER else []
            record = self.shown.add_run(
                obj, *writes, ident=f"{number}{attempt}", ending=ending, causes=causes, started=started, message=text
            )
            if name == OTHER:
                record.on_event(RunEvent(name="runner_on_ok", task="Create the namespace", task_id="task-1"))
            record.on_event(
                RunEvent(
                    name="runner_on_failed",
                    task=failure.task,
                    task_id="task-9",
                    host="localhost",
                    message=failure.message,
                    task_path="roles/team/tasks/main.yml:31",
                    duration_seconds=0.1,
                )
            )
            queue = self.shown.bench.controller.queue
            queue.add_rate_limited(ObjectKey("", name), Cause(f"retry {attempt + 1}"))

    def take(self, name: str) -> None:
        """Take the request of a new team, as if a run had ended."""
        queue = self.shown.bench.controller.queue
        key, _ = queue.take()
        assert key.name == name
        queue.done(key)


@pytest.fixture
async def fleet(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Yield the address of the dashboard of the fleet."""
    async with serving(fleet_of(cluster, tmp_path, monkeypatch)) as url:
        yield url


def fleet_of(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = shown_operator(cluster, tmp_path, monkeypatch, TEAM)
    place = Place("web-system", "web-6d5f7c9b8-x2v4q", "8090", Path("/records"))
    shown.sources = replace(shown.sources, place=place)
    Fleet(shown)
    return shown


@asynccontextmanager
async def serving(shown: Shown) -> AsyncIterator[str]:
    """Yield the address of the dashboard of an operator."""
    async with TestServer(dashboard_application(shown.sources, OPEN)) as server:
        yield str(server.make_url("/"))


FLEET = "33 of 35 Teams fail since "
TOP: FloatRect = {"x": 0, "y": 0, "width": 1280, "height": 560}
"""The part of the list that ``docs/pictures/dashboard.png`` shows."""

WIDE = {name: {**options, "viewport": {"width": 1280, "height": 800}} for name, options in WINDOWS.items()}
EVERY = {
    "light": WIDE["light"],
    "dark": WIDE["dark"],
    "phone": WINDOWS["phone"],
    "dark-phone": {**WINDOWS["phone"], "color_scheme": "dark"},
}


@pytest.mark.parametrize("kind", EVERY)
async def test_pages_of_failing_objects_are_accessible(browser: Browser, fleet: str, pictures: Path, kind: str) -> None:
    async with window(browser, **EVERY[kind]) as page:
        await page.goto(fleet)
        await expect(page.get_by_text(FLEET)).to_be_visible()
        await page.screenshot(path=pictures / f"fleet-top-{kind}.png", clip=TOP)
        await look(page, pictures / f"fleet-{kind}.png")
        await page.get_by_role("link", name=OTHER, exact=True).click()
        await expect(page.get_by_role("heading", name="Failing for")).to_be_visible()
        await look(page, pictures / f"fleet-object-{kind}.png")
        await page.locator("#commands summary").click()
        await look(page, pictures / f"fleet-commands-{kind}.png")
        await page.locator("a[id^=run-]").first.click()
        await expect(page.get_by_role("heading", name="Failed task")).to_be_visible()
        await look(page, pictures / f"fleet-run-{kind}.png")


async def test_filters_act_at_each_change_and_keep_the_focus_and_the_address(browser: Browser, fleet: str) -> None:
    async with window(browser, **EVERY["light"]) as page:
        await page.goto(fleet)
        rows = page.locator("tr.object")
        await expect(rows).to_have_count(35)
        await expect(page.get_by_role("button", name="Show")).to_have_count(0)
        await page.get_by_label("Name contains").press_sequentially("bui")
        await expect(rows).to_have_count(1)
        await expect(page.get_by_label("Name contains")).to_be_focused()
        await expect(page).to_have_url(f"{fleet}?q=bui")
        await page.get_by_label("Name contains").fill("")
        await expect(rows).to_have_count(35)
        await expect(page).to_have_url(fleet)
        await page.get_by_label("Order").select_option("by name")
        await expect(page).to_have_url(f"{fleet}?sort=name")
        await page.get_by_text(FLEET).click()
        await expect(page.get_by_role("heading", name="33 objects with this failure")).to_be_visible()
        await expect(rows).to_have_count(33)
        await page.get_by_label("Name contains").fill("ch")
        await expect(rows).to_have_count(3)


async def test_errors_are_whole_and_rows_fit_on_a_phone(browser: Browser, fleet: str) -> None:
    async with window(browser, **EVERY["phone"]) as page:
        await page.goto(fleet)
        error = page.locator("tr.error").filter(has_text="Isolate the namespace")
        row, text = await error.bounding_box(), await error.locator(".reason").first.bounding_box()
        assert row is not None
        assert text is not None
        assert text["width"] > 0.9 * row["width"] - 20
        await page.get_by_role("link", name=OTHER, exact=True).click()
        runs = page.locator("table.runs tbody tr")
        await expect(runs).to_have_count(5)
        for number in range(5):
            box = await runs.nth(number).bounding_box()
            assert box is not None
            assert box["height"] < 40, "a run takes more than a line"


async def test_commands_are_copied(browser: Browser, fleet: str) -> None:
    async with window(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.goto(f"{fleet}kinds/Team.v1.example.com/-/{OTHER}")
        await page.locator("#commands summary").click()
        await page.get_by_role("button", name="Copy").nth(1).click()
        await expect(page.get_by_role("button", name="Copied")).to_have_count(1)
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == f"kubectl annotate --overwrite team.example.com/{OTHER} rolecall.dev/paused=true"


async def test_follower_names_the_leader(
    browser: Browser, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: Path
) -> None:
    shown = fleet_of(cluster, tmp_path, monkeypatch)
    monkeypatch.setattr(shown.bench.manager, "leadership", Follower())
    async with serving(shown) as url, window(browser, **EVERY["light"]) as page:
        await page.goto(url)
        command = "kubectl port-forward --namespace web-system pod/web-7d9f8-abcde 8090"
        await expect(page.get_by_text(command)).to_be_visible()
        await look(page, pictures / "follower-light.png")
