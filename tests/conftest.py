"""Settings of all tests: the profiles of hypothesis, the garbage collector during collection, and the report of costs.

``--hypothesis-profile thorough`` tries twenty times as many examples, and others in each run.
"""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine, a single example can be slow, so only the test has a time limit. In CI, the examples are the same
# in every run, so failures are reproducible.
settings.register_profile(
    "everywhere",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.register_profile("thorough", settings.get_profile("everywhere"), max_examples=1000, derandomize=False)
settings.load_profile("everywhere")

# The readline library of the main process gives the processes of pytest-xdist a width. Tests are no terminal.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

pytest_plugins = ["tests.costs"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests with the garbage collector off, and exclude them from later collections.

    None of the five thousand tests is garbage, and to check them takes a fifth of the time, in each process of
    pytest-xdist.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
