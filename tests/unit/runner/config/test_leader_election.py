from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.election.elector import election_of

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


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(shards=4), "--shards 4 needs leader election: give --leader-elect"),
        (replace(ELECTING, shards=257), "--shards: expected at most 256, found 257"),
    ],
)
def test_shards_without_what_they_need_are_refused(settings: Settings, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        election_of(settings)
