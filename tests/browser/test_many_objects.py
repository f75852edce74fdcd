"""The dashboard of an operator that has ten thousand objects: a page at a time, and each of them found."""

from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, expect

from rolecall.runner.dashboard.server import dashboard_application
from rolecall.system.clock import SYSTEM_CLOCK
from tests.browser.windows import window
from tests.support.things import THING
from tests.unit.conftest import cluster
from tests.unit.runner.dashboard.conftest import OPEN, Shown, shown

__all__ = ["cluster", "shown"]

OBJECTS = 10_000
MOST_ROWS = 200


async def test_ten_thousand_objects_are_paged_searched_and_updated(browser: Browser, shown: Shown) -> None:
    shown.sources.manager.clock = SYSTEM_CLOCK  # lists are kept for a second, and a browser lives in real time
    for number in range(OBJECTS):
        shown.bench.tell(THING, name=f"thing-{number:05}")
    rows = "table.objects tr.object"
    async with TestServer(dashboard_application(shown.sources, OPEN)) as server, window(browser) as page:
        await page.goto(str(server.make_url("/")))
        await expect(page.get_by_role("heading", name=f"{OBJECTS} objects")).to_be_visible()
        assert 0 < await page.locator(rows).count() <= MOST_ROWS
        await page.get_by_role("link", name="Next page").click()
        await expect(page.get_by_text("Page 2 of ")).to_be_visible()
        await page.get_by_label("Name contains").fill("thing-09999")
        await expect(page.locator(rows)).to_have_count(1)
        shown.bench.tell(THING, name="thing-09999-and-one-more")
        await expect(page.locator(rows)).to_have_count(2)
