"""Which objects a plan is for, from what somebody has asked for.

The cluster is asked before a shadow is started, so that a mistake is told at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError, UnknownKindError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.workbench.plan.request import PlanError, PlanRequest

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Target:
    """An object to plan; ``edited`` is what a file says about it."""

    watch: Watch
    key: ObjectKey
    edited: RawObject | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """The objects of a request: single ones, whole kinds, and what else its files bring along."""

    single: tuple[Target, ...] = ()
    kinds: tuple[Watch, ...] = ()
    others: tuple[RawObject, ...] = ()


async def targets_of(request: PlanRequest, cluster: Client) -> Targets:
    """Return what a request is for. Raises PlanError, KubeError."""
    if request.files:
        return await _of_files(request, cluster)
    if request.everything:
        return Targets(kinds=await _wanted(request, cluster))
    [watch, *_] = await _wanted(request, cluster)
    resource = await cluster.resource(watch.gvk)
    key = ObjectKey(_namespace(request) if resource.namespaced else "", request.name)
    try:
        await cluster.get(watch.gvk, key)
    except NotFoundError as error:
        hint = "to plan an object that does not exist yet, use -f FILE"
        raise PlanError(f"{watch.gvk.kind} {key} was not found; {hint}") from error
    return Targets(single=(Target(watch, key),))


def read_objects(path: Path) -> list[RawObject]:
    """Return the objects in a YAML or JSON file. Raises PlanError."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: not YAML: {error}".replace("\n", " ")) from error
    objects = [each for each in documents if each is not None]
    if not objects or not all(isinstance(each, dict) and isinstance(each.get("kind"), str) for each in objects):
        raise PlanError(f"{path}: expected one or more objects with apiVersion, kind and metadata")
    if nameless := next((each["kind"] for each in objects if not metadata_of(each).get("name")), None):
        raise PlanError(f"{path}: the {nameless} has no metadata.name")
    return objects


async def _of_files(request: PlanRequest, cluster: Client) -> Targets:
    objects = [obj for path in request.files for obj in read_objects(path)]
    watches = {watch.gvk: watch for watch in request.watches}
    single = []
    for obj in (each for each in objects if GVK.of_object(each) in watches):
        watch = watches[GVK.of_object(obj)]
        resource = await cluster.resource(watch.gvk)
        namespace = str(metadata_of(obj).get("namespace") or _namespace(request)) if resource.namespaced else ""
        single.append(Target(watch, ObjectKey(namespace, str(metadata_of(obj)["name"])), obj))
    if not single:
        files = ", ".join(map(str, request.files))
        raise PlanError(f"{files}: no object of a kind in {request.settings.watches_file}, which has {_kinds(request)}")
    return Targets(tuple(single), others=tuple(each for each in objects if GVK.of_object(each) not in watches))


async def _wanted(request: PlanRequest, cluster: Client) -> tuple[Watch, ...]:
    """Return the watches of the kind that was asked for, all if none was. Raises PlanError."""
    found = [watch for watch in request.watches if not request.kind or await _is_kind(request.kind, watch, cluster)]
    if not found:
        raise PlanError(f"{request.kind!r} is not in {request.settings.watches_file}, which has {_kinds(request)}")
    return tuple(found)


async def _is_kind(text: str, watch: Watch, cluster: Client) -> bool:
    """Return whether a text names the kind of a watch, as kubectl would read it."""
    gvk = watch.gvk
    suffixes = ("", f".{gvk.group}", f".{gvk.version}.{gvk.group}") if gvk.group else ("",)
    if text.lower() in {gvk.kind.lower() + suffix for suffix in suffixes}:
        return True
    try:
        plural = (await cluster.resource(gvk)).plural
    except UnknownKindError:
        return False
    return text.lower() in {plural + suffix for suffix in suffixes}


def _namespace(request: PlanRequest) -> str:
    return request.namespace or DEFAULT_NAMESPACE


def _kinds(request: PlanRequest) -> str:
    return ", ".join(sorted({watch.gvk.kind for watch in request.watches})) or "no kind"
