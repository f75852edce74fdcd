"""The dashboard in a real browser: with and without JavaScript, by keyboard, on a phone, in the dark, and live."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import Site
from tests.browser.windows import window
from tests.support.things import THING

WINDOWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1300, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1300, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


async def look(page: Page, picture: Path) -> None:
    """Check a page for whom it would shut out, and take its picture."""
    await page.screenshot(path=picture, full_page=True)
    violations = (await Axe().run(page)).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations] == []
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wide) == 0, "the page is wider than its window"


@pytest.mark.parametrize("kind", WINDOWS)
async def test_pages_are_accessible(browser: Browser, site: Site, pictures: Path, kind: str) -> None:
    """Contrast, labels and all that axe knows, in each window."""
    await site.create("good")
    await site.create("too-large", size=200)
    async with window(browser, **WINDOWS[kind]) as page:
        await page.goto(site.path())
        await expect(page.get_by_role("link", name="good")).to_be_visible()
        await look(page, pictures / f"objects-{kind}.png")
        await page.get_by_role("link", name="too-large").click()
        await expect(page.get_by_role("heading", name="Triggers")).to_be_visible()
        await look(page, pictures / f"object-{kind}.png")
        await page.locator("a[id^=run-]").first.click()
        await expect(page.get_by_role("heading", name="Failed task")).to_be_visible()
        await expect(page.get_by_text("the size is above 100").first).to_be_visible()
        await expect(page.get_by_text("+  size: '200'")).to_be_visible()
        await look(page, pictures / f"run-{kind}.png")


async def test_filters_take_a_quarter_of_the_first_screen_and_rows_one_line(browser: Browser, site: Site) -> None:
    name = "a-name-of-sixty-characters-that-must-not-be-broken-in-lines"
    await site.create(name)
    async with window(browser, **WINDOWS["light"]) as page:
        await page.goto(site.path())
        await expect(page.get_by_role("link", name=name)).to_be_visible()
        table = await page.locator("table.objects").bounding_box()
        row = await page.locator("table.objects tbody tr").first.bounding_box()
        assert table is not None
        assert row is not None
        assert table["y"] <= 900 / 4
        assert row["height"] <= 40


async def test_page_updates_itself_and_keeps_the_focus(browser: Browser, site: Site) -> None:
    await site.create("first")
    async with window(browser) as page:
        await page.goto(site.path())
        await page.get_by_role("link", name="first").focus()
        await page.evaluate("window.isTheSame = true")
        await site.apply("second")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="second"))
        await expect(row.get_by_text("succeeded")).to_be_visible()
        assert await page.evaluate("window.isTheSame"), "the page was loaded again"
        await expect(page.get_by_role("link", name="first")).to_be_focused()


async def test_namespace_is_chosen_and_counted(browser: Browser, site: Site) -> None:
    await site.create("good")
    await site.create("too-large", size=200)
    async with window(browser) as page:
        await page.goto(site.url)
        await page.get_by_label("Namespace").select_option(site.world.namespace)
        await expect(page.get_by_role("heading", name=f"2 objects in {site.world.namespace}")).to_be_visible()
        await expect(page.get_by_role("link", name="all 2")).to_be_visible()
        await page.get_by_role("link", name="failed 1").click()
        await expect(page.locator("tr.object")).to_have_count(1)
        await expect(page.get_by_role("link", name="too-large")).to_be_visible()
        await expect(page.locator("tr.error").get_by_text("the size is above 100").first).to_be_visible()
        await page.locator("tr.error summary").click()
        await expect(page.locator("tr.error p")).to_contain_text("Task 'Refuse what is too large'")


async def test_tree_is_read_when_the_page_is_opened_and_stays(browser: Browser, site: Site) -> None:
    await site.create("first")
    async with window(browser) as page:
        await page.goto(site.path("first"))
        tree = page.locator("ul.tree")
        await expect(tree.get_by_text(f"{site.world.namespace}/size-of-first")).to_be_visible()
        await expect(tree.get_by_text("ready")).to_be_visible()
        await expect(page.locator("pre.spec")).to_contain_text("size: 1")
        await site.world.patch(THING, "first", {"spec": {"size": 2}})
        await expect(page.locator("a[id^=run-]")).to_have_count(2)  # the page has updated itself
        await expect(tree.get_by_text(f"{site.world.namespace}/size-of-first")).to_be_visible()
        await expect(page.locator("pre.spec")).to_contain_text("size: 1")
        await page.get_by_role("link", name="Read again").click()
        await expect(page.locator("pre.spec")).to_contain_text("size: 2")


async def test_page_of_a_deleted_object_reports_this(browser: Browser, site: Site) -> None:
    await site.create("first")
    context = await browser.new_context()  # a missing part is an error to the console
    page = await context.new_page()
    await page.goto(site.path("first"))
    await site.world.delete(THING, "first")
    await expect(page.get_by_role("heading", name="There is no such object")).to_be_visible()


async def test_keyboard_reaches_every_object_with_visible_focus(browser: Browser, site: Site) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await site.create(name)
    async with window(browser) as page:
        await page.goto(site.path())
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        reached: dict[str, str] = {}
        for _ in range(40):
            await page.keyboard.press("Tab")
            focused = page.locator(":focus")
            if await focused.count():
                text = await focused.inner_text()
                reached[text.strip()] = await focused.evaluate("each => getComputedStyle(each).outlineStyle")
        objects = {text: outline for text, outline in reached.items() if text.startswith(f"{site.world.namespace}/")}
        assert objects == {f"{site.world.namespace}/{name}": "solid" for name in names}
        await page.get_by_role("link", name=f"{site.world.namespace}/b").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("b")


async def test_everything_works_without_javascript(browser: Browser, site: Site) -> None:
    await site.create("first")
    await site.create("other")
    async with window(browser, java_script_enabled=False) as page:
        await page.goto(site.path())
        await expect(page.get_by_text("Without JavaScript, the page does not update by itself")).to_be_visible()
        await page.get_by_label("Name contains").fill(f"{site.world.namespace}/fir")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_role("link", name="first")).to_be_visible()
        await expect(page.get_by_role("link", name="other")).to_have_count(0)
        await page.get_by_role("link", name="failed 0").click()
        await expect(page.get_by_text("No object matches.")).to_be_visible()
        await page.go_back()
        await page.get_by_role("link", name="first").click()
        await page.locator("a[id^=run-]").first.click()
        await expect(page.get_by_role("heading", name="Tasks and their requests")).to_be_visible()
        await expect(page.get_by_text("+  size: '1'")).to_be_visible()
        await page.get_by_role("link", name="Thing", exact=True).click()
        await expect(page.get_by_role("heading", level=1, name="Objects")).to_be_visible()


async def test_page_reports_an_unresponsive_operator(browser: Browser, site: Site) -> None:
    context = await browser.new_context()  # what does not answer is an error to the console
    page = await context.new_page()
    await page.goto(site.path())
    await context.set_offline(True)
    await expect(page.get_by_role("alert")).to_have_text("The operator does not respond. This page is out of date.")
    await context.set_offline(False)
    await expect(page.get_by_role("alert")).to_be_hidden()


async def test_foreign_script_is_blocked(browser: Browser, site: Site) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(site.path())
    refused = (
        "() => new Promise(done => { document.addEventListener('securitypolicyviolation', e => done(e.blockedURI));"
    )
    refused += (
        " const s = document.createElement('script'); s.src = 'https://example.com/x.js'; document.head.append(s) })"
    )
    assert await page.evaluate(refused) == "https://example.com/x.js"
