"""Makes the kinds of the source known to the shadow.

A definition is created as it is in the source, apart from a conversion webhook, which the shadow cannot reach: of such
a kind the version that is asked for first is stored, and no other one can be used.
"""

import asyncio
import copy
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ConflictError, KubeError, UnknownKindError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.source import Source, SourceError

SERVED_WITHIN_SECONDS: Final = 15.0
LOOK_EVERY_SECONDS: Final = 0.05
DEFINITION_KIND: Final = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
_KEPT_METADATA: Final = ("name", "labels", "annotations")


@dataclass(slots=True)
class Definitions:
    """The definitions in a shadow, by what the source has; ``imported`` gets their names."""

    source: Source
    client: Client
    imported: set[str] = field(default_factory=set)
    _groups: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], RawObject] = field(default_factory=dict)
    _stored: dict[tuple[str, str], str] = field(default_factory=dict)
    """The only version that can be used of a kind with a conversion webhook."""

    def is_custom(self, group: str, plural: str) -> bool:
        """Return whether a definition defines a resource."""
        return (group, plural) in self._known

    async def install(self, group: str) -> None:
        """Create the definitions of a group, once. Raises SourceError."""
        if group in self._groups:
            return
        for definition in await self.source.definitions(group):
            await self._create(definition)
        self._groups.add(group)

    async def resource(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return a resource as the shadow serves it, None if it does not. Raises SourceError."""
        await self.install(group)
        await self._use_version(group, version, plural)
        try:
            return await self.client.resource_for_path(group, version, plural)
        except KubeError as error:
            raise SourceError(f"the shadow does not tell what {group}/{version} serves: {error}") from error

    async def resource_of(self, gvk: GVK) -> ApiResource | None:
        """Return the resource of a kind, None if the shadow does not serve it. Raises SourceError."""
        try:
            resource = await self.client.resource(gvk)
        except UnknownKindError:
            return None
        except KubeError as error:
            raise SourceError(f"the shadow does not tell what {gvk} is: {error}") from error
        await self._use_version(gvk.group, gvk.version, resource.plural)
        return resource

    async def _create(self, definition: RawObject) -> None:
        created = without_webhook(definition)
        spec = created["spec"]
        self.imported.add(created["metadata"]["name"])
        try:
            await self._create_or_replace(created)
        except KubeError as error:
            raise SourceError(f"the definition {created['metadata']['name']} cannot be imported: {error}") from error
        self._known[spec["group"], spec["names"]["plural"]] = definition
        served = [each["name"] for each in spec["versions"] if each.get("served")]
        for version in served:
            await self._wait_until_served(spec["group"], version, spec["names"]["plural"])

    async def _create_or_replace(self, created: RawObject) -> None:
        try:
            await self.client.create(created)
        except ConflictError:  # left from another source of the same shadow
            found = await self.client.get(DEFINITION_KIND, ObjectKey.of_object(created))
            await self.client.replace({**found, "spec": created["spec"]})

    async def _wait_until_served(self, group: str, version: str, plural: str) -> None:
        for _ in range(int(SERVED_WITHIN_SECONDS / LOOK_EVERY_SECONDS)):
            if await self.client.resource_for_path(group, version, plural):
                return
            await asyncio.sleep(LOOK_EVERY_SECONDS)  # discovery has no watch
        raise SourceError(f"the shadow did not serve {plural}.{group}/{version} within {SERVED_WITHIN_SECONDS:.0f} s")

    async def _use_version(self, group: str, version: str, plural: str) -> None:
        """Store objects of a kind with a conversion webhook in the version that is asked for."""
        definition = self._known.get((group, plural))
        if definition is None or not has_webhook(definition):
            return
        used = self._stored.setdefault((group, plural), version)
        if used != version:
            raise SourceError(
                f"{plural}.{group} is asked for in the versions {used} and {version}: the webhook that converts"
                " between them cannot be reached from a shadow; use one version in the role and in watches.yaml"
            )
        key = ObjectKey("", f"{plural}.{group}")
        current = await self.client.get(DEFINITION_KIND, key)
        versions = current["spec"]["versions"]
        if next((each["name"] for each in versions if each["storage"]), None) != version:
            changed = [{**each, "storage": each["name"] == version} for each in versions]
            await self.client.patch(DEFINITION_KIND, key, {"spec": {"versions": changed}})


def has_webhook(definition: RawObject) -> bool:
    """Return whether a webhook converts between the versions of a definition."""
    conversion: dict[str, Any] = definition["spec"].get("conversion") or {}
    return conversion.get("strategy") == "Webhook"


def without_webhook(definition: RawObject) -> RawObject:
    """Return a definition as it can be created: without status, and without a conversion webhook."""
    spec = copy.deepcopy(definition["spec"])
    if has_webhook(definition):
        spec["conversion"] = {"strategy": "None"}
    metadata = {name: value for name, value in metadata_of(definition).items() if name in _KEPT_METADATA}
    return {"apiVersion": DEFINITION_KIND.api_version, "kind": DEFINITION_KIND.kind, "metadata": metadata, "spec": spec}
