"""Which objects a plan is for, from what somebody has asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from rolecall.config.watches import Watch
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.plan.request import PlanError, PlanRequest
from rolecall.shadow.importer import Importer
from rolecall.shadow.source import SourceError

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Target:
    """An object to plan; ``edited`` is what a file says about it."""

    watch: Watch
    key: ObjectKey
    edited: RawObject | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """Finds the objects of a request, and imports them."""

    request: PlanRequest
    importer: Importer

    async def find(self) -> list[Target]:
        """Return the objects. Raises PlanError, SourceError."""
        if self.request.files:
            return [await self._of_file(path, obj) for path in self.request.files for obj in read_objects(path)]
        if self.request.everything:
            watches = [watch for watch in self.request.watches if not self.request.kind or await self._is_kind(watch)]
            if self.request.kind and not watches:
                raise self._unknown_kind()
            return [target for watch in watches for target in await self._all_of(watch)]
        return [await self._named()]

    async def _named(self) -> Target:
        for watch in self.request.watches:
            if await self._is_kind(watch):
                resource = await self._resource(watch)
                key = ObjectKey(self._namespace if resource.namespaced else "", self.request.name)
                if not await self.importer.import_object(watch.gvk, key):
                    hint = "to plan an object that does not exist yet, use -f FILE"
                    raise PlanError(f"{watch.gvk.kind} {key} was not found; {hint}")
                return Target(watch, key)
        raise self._unknown_kind()

    async def _of_file(self, path: Path, obj: RawObject) -> Target:
        gvk = GVK.of_object(obj)
        watch = next((each for each in self.request.watches if each.gvk == gvk), None)
        if watch is None:
            known = self.request.settings.watches_file
            raise PlanError(f"{path}: {gvk} is not in {known}; only its kinds can be planned")
        name = str(metadata_of(obj).get("name") or "")
        if not name:
            raise PlanError(f"{path}: the {gvk.kind} has no metadata.name")
        resource = await self._resource(watch)
        namespace = str(metadata_of(obj).get("namespace") or self._namespace) if resource.namespaced else ""
        key = ObjectKey(namespace, name)
        await self.importer.import_object(gvk, key)
        return Target(watch, key, obj)

    async def _all_of(self, watch: Watch) -> list[Target]:
        namespaces = [self.request.namespace] if self.request.namespace else self.request.settings.namespaces or ("",)
        await self._resource(watch)
        objects = [obj for namespace in namespaces for obj in await self.importer.import_all(watch.gvk, namespace)]
        selected = (obj for obj in objects if watch.selector.matches(metadata_of(obj).get("labels") or {}))
        return [Target(watch, ObjectKey.of_object(obj)) for obj in selected]

    async def _resource(self, watch: Watch) -> ApiResource:
        resource = await self.importer.resource_of(watch.gvk)
        if resource is None:
            raise SourceError(f"the cluster does not serve {watch.gvk}: is its CustomResourceDefinition installed?")
        return resource

    async def _is_kind(self, watch: Watch) -> bool:
        """Return whether a text names the kind of a watch, as kubectl would read it."""
        resource = await self.importer.resource_of(watch.gvk)
        gvk, text = watch.gvk, self.request.kind.lower()
        names = {gvk.kind.lower()} | ({resource.plural} if resource else set())
        suffixes = ("", f".{gvk.group}", f".{gvk.version}.{gvk.group}") if gvk.group else ("",)
        return text in {name + suffix for name in names for suffix in suffixes}

    @property
    def _namespace(self) -> str:
        return self.request.namespace or DEFAULT_NAMESPACE

    def _unknown_kind(self) -> PlanError:
        kinds = ", ".join(sorted({watch.gvk.kind for watch in self.request.watches})) or "no kind"
        return PlanError(f"{self.request.kind!r} is not in {self.request.settings.watches_file}, which has {kinds}")


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
    return objects
