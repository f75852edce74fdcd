"""Objects are compared without what the API server, controllers, and the operator maintain."""

import base64

from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.comparison.objects import cleaned, compared, text_in_base64

POD = GVK("", "v1", "Pod")
SECRET = GVK("", "v1", "Secret")


def pod(**content: object) -> RawObject:
    """Return a Pod as the API server returns it."""
    annotations = {"deployment.kubernetes.io/revision": "2", "own": "x"}
    metadata = {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 2, "annotations": annotations}
    return {"metadata": metadata, "kind": "Pod", "apiVersion": "v1", **content}


def test_cleaned_object_lacks_server_fields_and_status() -> None:
    found = cleaned(pod(status={"phase": "Running"}), with_status=False)
    assert found == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"own": "x"}}}
    assert cleaned(pod(status={"phase": "Running"}), with_status=True)["status"] == {"phase": "Running"}


def test_cleaned_object_lacks_the_mark_of_the_operator_but_keeps_the_word_of_the_author() -> None:
    marked = pod() | {"metadata": {"name": "a", "annotations": {"rolecall.dev/made-for": "uid:/Pod:ns/a"}}}
    assert cleaned(marked, with_status=False)["metadata"] == {"name": "a"}
    opted_out = pod() | {"metadata": {"name": "a", "annotations": {"rolecall.dev/prune": "false"}}}
    assert cleaned(opted_out, with_status=False)["metadata"] == opted_out["metadata"]


def test_end_state_lacks_times_and_fields_set_later() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-24T12:00:00Z"},
        {"type": "Failure", "status": "False", "ansibleResult": {"ok": 3}},
    ]
    obj = pod(spec={"nodeName": "one", "containers": []}, status={"conditions": conditions})
    found = compared(POD, obj, with_status=True)
    assert found["spec"] == {"containers": []}
    assert found["status"]["conditions"] == [
        {"type": "Failure", "status": "False"},
        {"type": "Ready", "status": "True"},
    ]


def test_values_of_a_secret_are_decoded_if_they_are_text() -> None:
    data = {"text": base64.b64encode(b"alpha").decode(), "bytes": base64.b64encode(b"\xff\xfe").decode()}
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data}
    assert compared(SECRET, obj, with_status=False)["data"] == {"text": "alpha", "bytes": data["bytes"]}


def test_text_that_is_not_base64_contains_no_text() -> None:
    assert text_in_base64("not base64!") == ""
