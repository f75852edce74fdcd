"""``run`` sets variables of this process for its runs; no other test must see them."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment after each test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
