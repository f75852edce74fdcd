"""What all tests share: how hypothesis works on machines of any speed, and when garbage is looked for.

``--hypothesis-profile thorough`` tries twenty times as many examples, and others in each run.
"""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure of the code: examples have no time limit of their own, only the test has. In CI the
# examples are the same in every run, so that a failure there can be repeated.
settings.register_profile(
    "everywhere",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.register_profile("thorough", settings.get_profile("everywhere"), max_examples=1000, derandomize=False)
settings.load_profile("everywhere")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage, and never look through them again.

    Five thousand tests are all that there is then, and none of them is garbage: to look costs a fifth of the time, in
    every process of pytest-xdist.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
