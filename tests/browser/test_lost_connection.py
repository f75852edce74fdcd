"""The API server is killed under the page, which shows it, with the age, until the API server is back."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from tests.browser.conftest import TASKS, Site
from tests.browser.windows import window
from tests.integration.conftest import wait_until_ready
from tests.integration.control_plane import separate_control_plane
from tests.integration.operators import Operator
from tests.support.things import write_project
from tests.support.world import World

LOST = re.compile(r"Thing: API server is unreachable; retrying\. Its objects are shown as they were \d+ s ago\.")


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane of the test's own, because it kills a part of it."""
    with separate_control_plane("lost", has_controllers=False) as running:
        yield running


@pytest.fixture
async def lonely_site(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """Yield the page of an operator of this control plane."""
    write_project(tmp_path, TASKS)
    operator = Operator(tmp_path, plane.kubeconfig, "default", ("--ui-bind-address", "127.0.0.1:0"))
    operator.start()
    await wait_until_ready(operator)
    (line,) = operator.messages("Serving the dashboard")
    async with await Client.connect(str(plane.kubeconfig)) as client:
        yield Site(line["url"], World(client, "default"))
    assert operator.stop() == 0


async def test_lost_connection_is_shown_with_the_age_until_the_api_server_is_back(
    browser: Browser, plane: ControlPlane, lonely_site: Site
) -> None:
    site = lonely_site
    await site.create("first")
    async with window(browser) as page, window(browser) as details:
        await page.goto(site.path())
        await details.goto(site.path("first"))
        await expect(page.get_by_role("link", name="first")).to_be_visible()
        await expect(page.locator(".lost")).to_have_count(0)

        await asyncio.to_thread(plane.stop_component, "kube-apiserver", grace_seconds=0)
        for each in (page, details):
            await expect(each.locator(".lost")).to_have_text(LOST)
        await expect(page.get_by_role("link", name="first")).to_be_visible()
        shown = await page.locator(".lost").inner_text()
        await expect(page.locator(".lost")).not_to_have_text(shown)  # its age grows

        await asyncio.to_thread(plane.start_component, "kube-apiserver")
        for each in (page, details):
            await expect(each.locator(".lost")).to_have_count(0)
        await site.create("second")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="second"))
        await expect(row.get_by_text("succeeded")).to_be_visible()
