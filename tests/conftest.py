"""What all tests share: how hypothesis works on machines of any speed.

``--hypothesis-profile thorough`` tries twenty times as many examples, and others in each run.
"""

import os

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
