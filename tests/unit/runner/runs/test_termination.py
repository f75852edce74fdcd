import pytest

from rolecall.runner.config.settings import Settings
from rolecall.runner.runs.process import grace_seconds

ELECTING = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")


def test_a_run_has_less_time_to_end_than_the_lease_has_left() -> None:
    assert grace_seconds(Settings()) == 5
    assert grace_seconds(ELECTING) == pytest.approx(1)
