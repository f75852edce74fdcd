from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.run import Run
from tests.support.things import THING

OWNER = Owner(THING, ObjectKey("default", "one"), "uid-one", namespaced=True)


def run() -> Run:
    return Run("1", owner=OWNER, own_writes=OwnWrites(), on_dependent=lambda *_: None)


def obj(uid: str) -> dict[str, object]:
    return {"metadata": {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": "1"}}


def test_run_that_writes_or_deletes_another_object_has_changed_something() -> None:
    written, deleted = run(), run()
    written.wrote(obj("uid-a"))
    deleted.deleted("uid-a")
    assert written.observations.changes
    assert deleted.observations.changes


def test_write_of_the_primary_changes_nothing_that_pruning_compares() -> None:
    """Roles write its status in each run."""
    found = run()
    found.wrote(obj("uid-one"))
    assert not found.observations.changes
