"""A real browser before the page of a real operator. ``make browser`` says which browser, in BROWSER."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, async_playwright, expect

from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import control_plane, defined, wait_until_ready, world
from tests.integration.operators import EVERY_NAMESPACE, Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import World, is_true

__all__ = ["control_plane", "defined", "world"]

TIMEOUT_SECONDS = 60.0
expect.set_options(timeout=TIMEOUT_SECONDS * 1000)
TASKS = """
- name: Write down the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "size-of-{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size | string }}"}
- name: Refuse what is too large
  ansible.builtin.assert:
    that: size < 100
    fail_msg: the size is above 100
"""


@pytest.fixture(scope="session")
def page_operator(defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Yield an operator with a dashboard on a free port."""
    directory = tmp_path_factory.mktemp("page")
    write_project(directory, TASKS)
    arguments = ("--ui-bind-address", "127.0.0.1:0", "--backoff-min", "1h", "--backoff-max", "1h")
    operator = Operator(directory, defined.kubeconfig, EVERY_NAMESPACE, arguments)
    operator.start()
    yield operator
    assert operator.stop() == 0


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Yield a browser; each test opens its own windows in it."""
    path = os.environ.get("BROWSER")
    if not path:
        pytest.fail("BROWSER is not set to a Chromium: run these tests with 'make browser'")
    # Where tests run as root, in a container, Chromium's sandbox cannot work.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        await browser.close()


@dataclass(slots=True)
class Site:
    """The page of an operator, with objects of the test's own namespace."""

    url: str
    world: World

    async def create(self, name: str, size: int = 1) -> None:
        """Apply an object, and wait until its run has ended."""
        await self.apply(name, size)
        await self.world.wait_for(THING, name, _has_ended)

    async def apply(self, name: str, size: int = 1) -> None:
        """Apply an object."""
        await self.world.create(MANIFEST.replace("one", name).replace("size: 1", f"size: {size}"))

    def path(self, name: str = "") -> str:
        """Return the address of an object, or that of the list of the test's objects."""
        if not name:
            return f"{self.url}?q={self.world.namespace}/"
        return f"{self.url}kinds/Thing.v1.test.rolecall.dev/{self.world.namespace}/{name}"


def _has_ended(obj: dict[str, Any]) -> bool:
    return is_true(obj, "Successful") or is_true(obj, "Failure")


@pytest.fixture
async def site(page_operator: Operator, world: World) -> Site:
    """Return the page, once the operator works."""
    await wait_until_ready(page_operator)
    (line,) = page_operator.messages("Serving the dashboard")
    return Site(line["url"], world)


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Return the directory for screenshots of the pages; it isn't committed."""
    directory = Path(__file__).parents[2] / ".pictures"
    directory.mkdir(exist_ok=True)
    return directory
