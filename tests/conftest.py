"""What all tests share: how hypothesis works on machines of any speed."""

import os

from hypothesis import HealthCheck, settings

# A busy machine is no failure of the code: examples have no time limit of their own, only the test has. In CI the
# examples are the same in every run, so that a failure there can be repeated.
settings.register_profile(
    "everywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("everywhere")
