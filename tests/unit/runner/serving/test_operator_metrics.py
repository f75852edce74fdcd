import pytest
from prometheus_client.parser import text_string_to_metric_families

from rolecall.runner.serving.operator_metrics import OperatorMetrics

THING = ("one", "default", "example.com", "v1", "Thing")
CREATED = 'resource_created_at_seconds{group="example.com",kind="Thing",name="one",namespace="default",version="v1"}'


@pytest.fixture
def telemetry() -> OperatorMetrics:
    return OperatorMetrics("1.2.3")


def lines(telemetry: OperatorMetrics) -> list[str]:
    return telemetry.render().decode().splitlines()


def test_the_text_can_be_parsed_and_says_what_runs(telemetry: OperatorMetrics) -> None:
    telemetry.user_metrics.apply({"name": "mine", "description": "a \\ and\nmore", "counter": {"add": 2}})
    families = {family.name: family for family in text_string_to_metric_families(telemetry.render().decode())}
    (build,) = families["ansible_operator_build_info"].samples
    assert build.labels == {"commit": "", "version": "1.2.3"}
    assert families["mine"].documentation == "a \\ and\nmore"
    assert "process_resident_memory_bytes" in families


def test_two_operators_in_one_process_count_for_themselves(telemetry: OperatorMetrics) -> None:
    other = OperatorMetrics("1")
    telemetry.reconcile_results.count("g", succeeded=True)
    assert 'ansible_operator_reconcile_result{GVK="g",result="succeeded"} 1.0' in lines(telemetry)
    assert not [line for line in lines(other) if line.startswith("ansible_operator_reconcile_result{")]


def test_an_objects_creation_time_comes_and_goes_with_it(telemetry: OperatorMetrics) -> None:
    telemetry.resource_created_at.set(THING, "2026-01-02T03:04:05Z")
    assert f"{CREATED} 1.767323045e+09" in lines(telemetry)
    telemetry.resource_created_at.remove(THING)
    telemetry.resource_created_at.remove(THING)
    assert not [line for line in lines(telemetry) if line.startswith(CREATED)]


def test_an_object_without_a_time_has_no_series(telemetry: OperatorMetrics) -> None:
    telemetry.resource_created_at.set(THING, "yesterday")
    assert not [line for line in lines(telemetry) if line.startswith(CREATED)]


def test_requests_leaders_and_certificates_are_counted(telemetry: OperatorMetrics) -> None:
    telemetry.count_request("200", "GET", "localhost:6443")
    telemetry.count_request("<error>", "PUT", "localhost:6443")
    telemetry.set_leading("lock", leading=True)
    telemetry.count_slow_renewal("lock")
    telemetry.count_certificate(succeeded=False)
    found = lines(telemetry)
    assert 'rest_client_requests_total{code="200",host="localhost:6443",method="GET"} 1.0' in found
    assert 'rest_client_requests_total{code="<error>",host="localhost:6443",method="PUT"} 1.0' in found
    assert 'leader_election_master_status{name="lock"} 1.0' in found
    assert 'leader_election_slowpath_total{name="lock"} 1.0' in found
    assert "certwatcher_read_certificate_total 1.0" in found
    assert "certwatcher_read_certificate_errors_total 1.0" in found
    assert not [line for line in found if "_created" in line and not line.startswith(("#", "resource_created"))]


def test_replaced_fork_servers_are_counted_by_reason(telemetry: OperatorMetrics) -> None:
    telemetry.count_fork_server("hanging")
    family = "ansible_operator_fork_server_replacements_total"
    assert {line for line in lines(telemetry) if line.startswith(family)} == {
        f'{family}{{reason="stale"}} 0.0',
        f'{family}{{reason="died"}} 0.0',
        f'{family}{{reason="hanging"}} 1.0',
        f'{family}{{reason="not-ready"}} 0.0',
    }


def test_the_watches_of_reads_are_shown_by_kind() -> None:
    metrics = OperatorMetrics("1.2.3")
    metrics.read_watches.set("/v1, Kind=Secret", 2, 5)
    text = metrics.render().decode()
    assert 'ansible_operator_read_watches{GVK="/v1, Kind=Secret"} 2.0' in text
    assert 'ansible_operator_read_subscriptions{GVK="/v1, Kind=Secret"} 5.0' in text


def test_the_shards_that_are_held_have_a_series_each(telemetry: OperatorMetrics) -> None:
    telemetry.set_shards({0, 3}, 2)
    telemetry.set_shards({3, 4}, 3)
    assert [line for line in lines(telemetry) if line.startswith("ansible_operator_shard")] == [
        'ansible_operator_shard_held{shard="3"} 1.0',
        'ansible_operator_shard_held{shard="4"} 1.0',
        "ansible_operator_shard_members 3.0",
    ]
