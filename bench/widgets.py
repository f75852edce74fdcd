"""The objects of the benchmark: its own kind, made and changed by the thousand.

A Widget is a small custom resource with a handful of fields and a status, as most are. Requests go out side by side
from this process, so that creating ten thousand takes seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rolecall.kube.client import Client
from rolecall.kube.metadata import generation_of
from rolecall.kube.references import GVK, ObjectKey, RawObject

WIDGET = GVK("bench.rolecall.dev", "v1", "Widget")
AT_ONCE = 16
_Asked = TypeVar("_Asked")

_OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION: RawObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.bench.rolecall.dev"},
    "spec": {
        "group": WIDGET.group,
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": WIDGET.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN_OBJECT, "status": _OPEN_OBJECT}}
                },
            }
        ],
    },
}

_WATCH = """\
- group: bench.rolecall.dev
  version: v1
  kind: Widget
  role: widget
"""


def write_project(directory: Path) -> None:
    """Write the watches.yaml of Widgets, and a role for it that no instant play ever reads."""
    (directory / "watches.yaml").write_text(_WATCH)
    tasks = directory / "roles" / "widget" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text("[]\n")


def keys(namespace: str, count: int) -> list[ObjectKey]:
    """Return where so many Widgets lie."""
    return [ObjectKey(namespace, f"widget-{number:05d}") for number in range(count)]


async def create(client: Client, where: Iterable[ObjectKey]) -> None:
    """Create a Widget at each of these places."""
    await side_by_side(lambda key: client.create(_widget(key)), where)


async def change(client: Client, key: ObjectKey, revision: int) -> None:
    """Change the spec of one Widget."""
    await client.patch(WIDGET, key, {"spec": {"revision": revision}})


async def are_settled(client: Client, namespace: str) -> bool:
    """Return whether the status of every Widget of a namespace is that of a success with its present spec."""
    async for page, _ in client.list_pages(WIDGET, namespace):
        if not all(_is_settled(obj) for obj in page):
            return False
    return True


async def is_settled(client: Client, key: ObjectKey) -> bool:
    """Tell the same of one Widget."""
    return _is_settled(await client.get(WIDGET, key))


def _is_settled(obj: RawObject) -> bool:
    status = obj.get("status") or {}
    successful = any(
        condition["type"] == "Successful" and condition["status"] == "True"
        for condition in status.get("conditions", ())
    )
    return successful and status.get("observedGeneration") == generation_of(obj)


def _widget(key: ObjectKey) -> RawObject:
    return {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {"app": "bench", "widget": key.name}},
        "spec": {"revision": 0, "replicas": 3, "image": "nginx:latest", "settings": {"colour": "red", "size": 7}},
    }


async def side_by_side(ask: Callable[[_Asked], Awaitable[object]], where: Iterable[_Asked]) -> None:
    """Request each of these, some at a time."""
    waiting = iter(where)

    async def work() -> None:
        for key in waiting:
            await ask(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
