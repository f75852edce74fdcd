"""A replay without a run names each reason: the scope, labels, a pause, a deletion, or an invalid annotation."""

from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.workbench.replay.missing_runs import reasons

SELECTED = LabelSelector.compile({"matchLabels": {"team": "a"}})


def site(namespace: str = "here", **metadata: Any) -> RawObject:
    """Return the object of a record."""
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "one", **where, **metadata}}


def found(obj: RawObject, *, is_namespaced: bool = True, **options: Any) -> list[str]:
    watch = Watch(GVK("example.com", "v1", "Site"), RoleContent(Path("roles/site")), **options)
    return list(reasons(obj, watch, is_namespaced=is_namespaced))


def test_object_that_can_run_has_no_reason() -> None:
    assert found(site()) == []
    assert found(site(labels={"team": "a"}), selector=SELECTED) == []


def test_each_reason_is_named() -> None:
    deleted = {"deletionTimestamp": "2026-11-28T12:00:00Z"}
    finalizer = Finalizer("example.com/end", None, {})
    assert found(site(), is_namespaced=False) == ["its object is in the namespace here, but Site is cluster-scoped"]
    assert found(site("")) == ["its object has no namespace, but Site is namespaced"]
    assert found(site(annotations={"rolecall.dev/paused": "true"})) == [
        "it is paused by the annotation rolecall.dev/paused"
    ]
    assert found(site(**deleted)) == ["it is being deleted, and Site has no finalizer in watches.yaml"]
    assert found(site(**deleted), finalizer=finalizer) == [
        "it is being deleted, and lacks the finalizer example.com/end of watches.yaml"
    ]
    assert found(site(**deleted, finalizers=["example.com/end"]), finalizer=finalizer) == []
    [period] = found(site(annotations={"ansible.sdk.operatorframework.io/reconcile-period": "often"}))
    assert period.startswith("the annotation with its reconcile period is invalid: ")


@pytest.mark.parametrize(("labels", "shown"), [({}, "none"), ({"team": "b", "a": "1"}, "a=1, team=b")])
def test_labels_that_do_not_match_are_named(labels: dict[str, str], shown: str) -> None:
    assert found(site(labels=labels), selector=SELECTED) == [
        f"its labels ({shown}) don't match the selector {SELECTED.text} in watches.yaml"
    ]
