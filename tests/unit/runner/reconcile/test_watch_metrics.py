from rolecall.kube.references import GVK, RawObject
from rolecall.runner.controller.store import Change, ChangeType, Entry
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.watch_controller import WatchMetricsFactory, controller_names

CACHE = GVK("cache.example.com", "v1alpha1", "Memcached")
OTHER = GVK("other.example.com", "v1alpha1", "Memcached")
SECRET = GVK("", "v1", "Secret")
SERIES = b'resource_created_at_seconds{group="cache.example.com",kind="Memcached",name="one",namespace="n",version='


def test_a_controller_is_named_after_kind_and_version() -> None:
    assert controller_names([CACHE, SECRET]) == {
        CACHE: "memcached-v1alpha1-controller",
        SECRET: "secret-v1-controller",
    }


def test_equal_kinds_of_two_groups_have_two_names() -> None:
    assert controller_names([CACHE, OTHER]) == {
        CACHE: "memcached-cache.example.com-v1alpha1-controller",
        OTHER: "memcached-other.example.com-v1alpha1-controller",
    }


def changed(kind: ChangeType) -> Change:
    metadata = {"name": "one", "namespace": "n", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    obj: RawObject = {"apiVersion": CACHE.api_version, "kind": CACHE.kind, "metadata": metadata}
    entry = Entry.of(obj, {})
    is_gone = kind is ChangeType.DELETED
    return Change(kind, CACHE, entry if is_gone else None, None if is_gone else entry, obj)


def test_the_series_of_an_object_goes_with_it() -> None:
    telemetry = OperatorMetrics("test")
    metrics = WatchMetricsFactory.of_kinds(telemetry, [CACHE]).of(CACHE, workers=1)
    metrics.primary_changed(changed(ChangeType.ADDED), selected=True)
    assert SERIES in telemetry.render()
    metrics.primary_changed(changed(ChangeType.DELETED), selected=False)
    assert SERIES not in telemetry.render()


def test_outcomes_are_counted_from_the_start() -> None:
    telemetry = OperatorMetrics("test")
    metrics = WatchMetricsFactory.of_kinds(telemetry, [CACHE]).of(CACHE, workers=1)
    metrics.run_ended(RunSummary("failed"))
    text = telemetry.render().decode()
    gvk = 'GVK="cache.example.com/v1alpha1, Kind=Memcached"'
    assert f'ansible_operator_reconcile_result{{{gvk},result="failed"}} 1.0' in text
    assert f'ansible_operator_reconcile_result{{{gvk},result="succeeded"}} 0.0' in text
