"""Stands before the API server of a shadow: imports what a request asks about, and refuses what no shadow can do.

Discovery of the shadow would lack the groups of the source that nobody has asked for yet, so the list of all groups
is made of both. Whoever plans asks ``problems`` afterwards: a role may ignore the answer that it gets.
"""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from rolecall.kube.connection import Request
from rolecall.kube.metadata import metadata_of
from rolecall.runner.proxy.bodies import decode_object
from rolecall.runner.proxy.error_responses import error_response
from rolecall.runner.proxy.request_interceptor import GatedRequest
from rolecall.workbench.plan.importer import Importer
from rolecall.workbench.plan.source import SourceError

_GROUPS: Final = "/apis"
_REFUSED: Final = frozenset({"exec", "attach", "portforward", "proxy", "log"})


@dataclass(frozen=True, slots=True)
class Problem:
    """A request that could not be answered as the source would have: the task that asked, and why."""

    ident: str
    task: str
    text: str


@dataclass(slots=True)
class ShadowGate:
    """The gate of the proxy of one shadow."""

    importer: Importer
    problems: list[Problem] = field(default_factory=list)

    async def before(self, request: GatedRequest) -> web.Response | None:
        """Let a request pass when what it asks about has been imported."""
        info = request.info
        if info.subresource in _REFUSED or info.verb == "proxy":
            return self._refuse(request, f"{info.subresource or 'proxy'} of {info.resource} does not run in a plan")
        try:
            if not info.is_resource:
                return await self._discovery(request)
            await self.importer.before(info, request.query, _name_in(request))
        except SourceError as error:
            return self._refuse(request, str(error))
        return None

    def _refuse(self, request: GatedRequest, text: str) -> web.Response:
        self.problems.append(Problem(request.spec.ident, request.asker.task, text))
        return error_response(HTTPStatus.FORBIDDEN, "Forbidden", text)

    async def _discovery(self, request: GatedRequest) -> web.Response | None:
        match request.path.strip("/").split("/"):
            case ["apis"]:
                return await self._all_groups()
            case ["apis", group, *_] | ["openapi", "v3", "apis", group, *_]:
                await self.importer.install(group)
        return None

    async def _all_groups(self) -> web.Response:
        source = await self.importer.source.groups()
        own = json.loads(await self.importer.client.receive(Request("GET", _GROUPS)))
        groups: dict[str, Any] = {each["name"]: each for each in (*(source.get("groups") or ()), *own["groups"])}
        return web.json_response({**own, "groups": list(groups.values())})


def _name_in(request: GatedRequest) -> str:
    """Return the name in the body of an object to create."""
    if request.info.verb != "create" or request.info.subresource:
        return ""
    obj = decode_object(request.body, request.content_type)
    return str(metadata_of(obj or {}).get("name") or "")
