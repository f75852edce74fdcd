"""The work of all subjects as kopf handlers in plain Python: what the same job costs without Ansible.

Loaded by ``kopf run``. The handlers read the pods, compare, create what is missing and write the status, as the roles
do; the comparison for PodScalers is the role's own filter, and the manifests of Apps are the role's own template. A pod
that goes starts the work of its owner, as rolecall's triggers do. kopf's settings are its defaults, except the number
of workers and its Events, which are off.
"""

import json
import os
import runpy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
import yaml
from bench.subjects import APP, CONTAINERS, CONTENT, POD_SCALER, WIDGET
from jinja2 import Template
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

from rolecall.kube.references import GVK

Fields = dict[str, Any]
_FILTERS = Path(__file__).resolve().parents[1] / "roles" / "podscaler" / "filter_plugins" / "podscaler.py"
_MANIFESTS = Template((CONTENT / "roles" / "app" / "templates" / "app.yaml.j2").read_text())
_LIMIT = 500


_plan: Callable[[list[Fields], Fields, int], Fields] = runpy.run_path(str(_FILTERS))["plan"]


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Take as many workers as the other contenders have, and connect."""
    settings.execution.max_workers = int(os.environ["WORKERS"])
    settings.posting.enabled = False
    config.load_kube_config()
    memo.core, memo.custom = client.CoreV1Api(), client.CustomObjectsApi()
    memo.cluster = DynamicClient(client.ApiClient())


@kopf.on.create(POD_SCALER.group, POD_SCALER.version, "podscalers")
@kopf.on.update(POD_SCALER.group, POD_SCALER.version, "podscalers")
@kopf.on.create(WIDGET.group, WIDGET.version, "widgets")
@kopf.on.update(WIDGET.group, WIDGET.version, "widgets")
@kopf.on.create(APP.group, APP.version, "apps")
@kopf.on.update(APP.group, APP.version, "apps")
def reconcile(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    """Do what the role of the kind does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Successful", "status": "True", "reason": "Successful", "lastTransitionTime": now}
    patch.status.update(_run(memo, dict(body)))
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
        _run(memo, memo.custom.get_namespaced_custom_object(*place, owner["name"]))


def _run(memo: kopf.Memo, obj: Fields) -> Fields:
    if obj["kind"] == APP.kind:
        return _apply(memo.cluster, obj)
    return (_scale if obj["kind"] == POD_SCALER.kind else _complete)(memo.core, obj)


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


def _apply(cluster: DynamicClient, obj: Fields) -> Fields:
    manifests = list(yaml.safe_load_all(_MANIFESTS.render(obj["spec"], ansible_operator_meta=obj["metadata"])))
    for manifest in manifests:
        manifest["metadata"]["ownerReferences"] = [_owner(obj)]
        kind = cluster.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
        place = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        try:
            kind.get(*place)
        except NotFoundError:
            kind.create(manifest, place[1])
        else:
            kind.patch(manifest, *place, content_type="application/merge-patch+json")
    return {}


def _pods(core: client.CoreV1Api, namespace: str, labels: Mapping[str, str]) -> list[Fields]:
    selector = ",".join("=".join(pair) for pair in labels.items())
    answer = core.list_namespaced_pod(namespace, label_selector=selector, _preload_content=False)
    found: list[Fields] = json.loads(answer.data)["items"]
    return found


def _pod(obj: Fields, labels: Mapping[str, str], **name: str) -> Fields:
    metadata = {**name, "labels": dict(labels), "ownerReferences": [_owner(obj)]}
    return {"metadata": metadata, "spec": {"containers": CONTAINERS}}


def _owner(obj: Fields) -> Fields:
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "controller": True}
    return owner | {key: obj["metadata"][key] for key in ("name", "uid")}
