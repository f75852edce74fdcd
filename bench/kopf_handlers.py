"""The work of both subjects as kopf handlers in plain Python: what the same job costs without Ansible.

Loaded by ``kopf run``. The handlers read the pods, compare, create what is missing and write the status, as the roles
do; the comparison for PodScalers is the role's own filter. A pod that goes starts the work of its owner, as rolecall's
triggers do. kopf's settings are its defaults, except the number of workers and its Events, which are off.
"""

import json
import os
import runpy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
from bench.subjects import CONTAINERS, POD_SCALER, WIDGET
from kubernetes import client, config

from rolecall.kube.references import GVK

Fields = dict[str, Any]
_FILTERS = Path(__file__).resolve().parents[1] / "roles" / "podscaler" / "filter_plugins" / "podscaler.py"
_LIMIT = 500


_plan: Callable[[list[Fields], Fields, int], Fields] = runpy.run_path(str(_FILTERS))["plan"]


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Take as many workers as the other contenders have, and connect."""
    settings.execution.max_workers = int(os.environ["WORKERS"])
    settings.posting.enabled = False
    config.load_kube_config()
    memo.core, memo.custom = client.CoreV1Api(), client.CustomObjectsApi()


@kopf.on.create(POD_SCALER.group, POD_SCALER.version, "podscalers")
@kopf.on.update(POD_SCALER.group, POD_SCALER.version, "podscalers")
@kopf.on.create(WIDGET.group, WIDGET.version, "widgets")
@kopf.on.update(WIDGET.group, WIDGET.version, "widgets")
def reconcile(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    """Do what the role of the kind does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Successful", "status": "True", "reason": "Successful", "lastTransitionTime": now}
    patch.status.update(_run(memo.core, dict(body)))
    patch.status.update(conditions=[condition], observedGeneration=body.metadata["generation"])


@kopf.on.event("v1", "pods")
def replace(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Repeat the work of the owner of a deleted pod."""
    if event["type"] != "DELETED":
        return
    for owner in body.metadata.get("ownerReferences", ()):
        plural = {POD_SCALER.kind: "podscalers", WIDGET.kind: "widgets"}[owner["kind"]]
        gvk = GVK.of(owner["apiVersion"], owner["kind"])
        place = gvk.group, gvk.version, body.metadata.namespace, plural
        _run(memo.core, memo.custom.get_namespaced_custom_object(*place, owner["name"]))


def _run(core: client.CoreV1Api, obj: Fields) -> Fields:
    return (_scale if obj["kind"] == POD_SCALER.kind else _complete)(core, obj)


def _scale(core: client.CoreV1Api, obj: Fields) -> Fields:
    selector, namespace = obj["spec"]["selector"], obj["metadata"]["namespace"]
    plan = _plan(_pods(core, namespace, selector), obj, _LIMIT)
    for _ in range(plan["missing"]):
        core.create_namespaced_pod(namespace, _pod(obj, selector, generateName="scaled-pod-"))
    for victim in plan["delete"]:
        core.delete_namespaced_pod(victim["metadata"]["name"], namespace)
    stats: Fields = plan["stats"]
    return stats


def _complete(core: client.CoreV1Api, obj: Fields) -> Fields:
    name, namespace, count = obj["metadata"]["name"], obj["metadata"]["namespace"], obj["spec"]["pods"]
    labels = {"widget": name}
    present = {pod["metadata"]["name"] for pod in _pods(core, namespace, labels)}
    for number in range(count):
        if f"{name}-{number}" not in present:
            core.create_namespaced_pod(namespace, _pod(obj, labels, name=f"{name}-{number}"))
    return {"pods": count}


def _pods(core: client.CoreV1Api, namespace: str, labels: Mapping[str, str]) -> list[Fields]:
    selector = ",".join("=".join(pair) for pair in labels.items())
    answer = core.list_namespaced_pod(namespace, label_selector=selector, _preload_content=False)
    found: list[Fields] = json.loads(answer.data)["items"]
    return found


def _pod(obj: Fields, labels: Mapping[str, str], **name: str) -> Fields:
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "controller": True}
    owner |= {key: obj["metadata"][key] for key in ("name", "uid")}
    metadata = {**name, "labels": dict(labels), "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"containers": CONTAINERS}}
