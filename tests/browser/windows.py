"""Windows of the browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page


@asynccontextmanager
async def window(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """Yield a window, and check at the end that nothing was rejected or failed in it."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    yield page
    assert trouble == []
    await context.close()
