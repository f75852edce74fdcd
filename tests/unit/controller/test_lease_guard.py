import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rolecall.config.errors import ConfigurationError
from rolecall.config.settings import Settings
from rolecall.controller.lease_guard import LeaseGuard, election_of, run_grace_seconds
from rolecall.kube.references import ObjectKey

ELECTING = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")


def test_nobody_is_elected_unless_asked_for(tmp_path: Path) -> None:
    assert election_of(Settings(leader_election_id="lock"), tmp_path / "namespace") is None


def test_the_settings_name_lease_and_times() -> None:
    election = election_of(ELECTING)
    assert election
    assert election.key == ObjectKey("operators", "lock")
    assert (election.lease_seconds, election.renew_deadline_seconds, election.retry_seconds) == (15, 10, 2)


def test_every_replica_has_an_identity_of_its_own() -> None:
    found = {election.identity for election in (election_of(ELECTING), election_of(ELECTING)) if election}
    assert len(found) == 2
    assert all(len(identity.rpartition("_")[2]) == 36 for identity in found)


def test_in_a_pod_the_namespace_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("home\n")
    election = election_of(Settings(leader_elect=True, leader_election_id="lock"), file)
    assert election
    assert election.key == ObjectKey("home", "lock")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(leader_elect=True, leader_election_namespace="n"), "give --leader-election-id"),
        (Settings(leader_elect=True, leader_election_id="lock"), "give --leader-election-namespace"),
        (
            Settings(leader_elect=True, leader_election_id="lock", lease_duration_seconds=10),
            "must be above 0 and below --leader-elect-lease-duration, found 10 s and 10 s",
        ),
    ],
)
def test_what_is_missing_is_named(settings: Settings, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        election_of(settings, tmp_path / "namespace")
    assert text in str(error.value)


def test_a_run_has_less_time_to_end_than_the_lease_has_left() -> None:
    assert run_grace_seconds(Settings()) == 5
    assert run_grace_seconds(ELECTING) == pytest.approx(1)


def test_the_guard_strikes_before_the_lease_ends() -> None:
    struck = threading.Event()
    guard = LeaseGuard(0.2, struck.set)
    guard.start()
    guard.renewed(time.monotonic() + 0.3)
    assert struck.wait(5)


def test_the_guard_does_not_strike_while_the_lease_is_renewed_or_was_given_back() -> None:
    struck = threading.Event()
    guard = LeaseGuard(0.1, struck.set)
    guard.start()
    guard.renewed(time.monotonic() + 0.3)
    guard.renewed(math.inf)
    assert not struck.wait(0.6)


STANDING_STILL = """
import subprocess, sys, time
from rolecall.controller.lease_guard import LeaseGuard, _end_everything

child = subprocess.Popen(["sleep", "300"])
print(child.pid, flush=True)
guard = LeaseGuard(0.1, _end_everything)
guard.start()
guard.renewed(time.monotonic() + 0.3)
time.sleep(300)
"""


def test_an_operator_that_stands_still_is_ended_with_all_its_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", STANDING_STILL], stdout=subprocess.PIPE, text=True) as operator:
        assert operator.stdout
        child = int(operator.stdout.readline())
        assert operator.wait(30) == 1
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
