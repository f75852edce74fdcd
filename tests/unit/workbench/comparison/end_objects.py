"""End states for tests."""

from typing import Any

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.comparison.end_states import EndObject, EndState, ObjectId

CONFIG_MAP = GVK("", "v1", "ConfigMap")
SECRET = GVK("", "v1", "Secret")


def object_of(gvk: GVK, name: str, prefix: str = "", **content: Any) -> tuple[ObjectId, EndObject]:
    """Return an object in the namespace "ns" with its id; ``prefix`` is its generateName."""
    key = ObjectKey("ns", name)
    metadata = {"name": name, "namespace": "ns"} | ({"generateName": prefix} if prefix else {})
    ident = ObjectId(gvk.group, gvk.version, f"{gvk.kind.lower()}s", key)
    return ident, EndObject(gvk, key, {"kind": gvk.kind, "metadata": metadata, **content})


def config_map(name: str = "a", prefix: str = "", **data: Any) -> tuple[ObjectId, EndObject]:
    """Return a ConfigMap with its id."""
    return object_of(CONFIG_MAP, name, prefix, data=data)


def state(*objects: tuple[ObjectId, EndObject]) -> EndState:
    """Return an end state with these objects."""
    return dict(objects)
