"""What a request to the API server asks for, read from its method, path and query alone.

The reading follows the API server's own rules as far as the proxy needs them: which kind in which namespace, which
object and subresource, and the verb. It is pure and never raises, whatever the target looks like: a path that names no
resource is simply no resource request.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_VERBS_IN_THE_PATH: Final = frozenset({"proxy", "watch"})
_SUBRESOURCES_OF_NAMESPACES: Final = frozenset({"status", "finalize"})
_RAW_SUBRESOURCES: Final = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_BY_NAME: Final = "metadata.name="
_TARGET: Final = re.compile(r"/[!-~]*")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a request asks for; fields that do not apply are empty text.

    ``verb`` is one of Kubernetes' (get, list, watch, create, update, patch, delete, deletecollection, proxy) for a
    resource request, else the method in lower case.
    """

    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    is_dry_run: bool = False

    @property
    def is_long_running(self) -> bool:
        """Tell whether the answer may take as long as it wants: a watch, a log, a tunnel, or nothing we know of."""
        return not self.is_resource or self.verb in {"watch", "proxy"} or self.subresource in _RAW_SUBRESOURCES

    @property
    def may_leave_http(self) -> bool:
        """Tell whether the request may ask for another protocol; a write and a plain read may not."""
        return self.is_long_running or (bool(self.subresource) and not self.is_write)

    @property
    def is_write(self) -> bool:
        """Tell whether the answer shows an object as this request has changed it."""
        verbs = {"create", "update", "patch", "delete", "deletecollection"}
        return self.is_resource and self.verb in verbs and self.subresource not in _RAW_SUBRESOURCES


def parse(method: str, target: str) -> RequestInfo:
    """Read a request's method and target (path and query, still percent-encoded)."""
    path, _, query_text = origin_form(target).partition("?")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    method = method.upper()
    parts = unquote(path).strip("/").split("/")
    match parts:
        case ["api", version, *rest] if rest:
            return _resource_request(method, ("", version), rest, query)
        case ["apis", group, version, *rest] if rest:
            return _resource_request(method, (group, version), rest, query)
    return RequestInfo(verb=method.lower())


def is_well_formed(target: str) -> bool:
    """Tell whether a target in origin form is nothing but a path and a query, in the letters that URLs may have.

    Whatever else is put behind the API server's URL could mean something else to the one who reads that URL: a
    fragment is cut off, and what does not begin with a slash becomes a part of the host.
    """
    return _TARGET.fullmatch(target) is not None and "#" not in target


def origin_form(target: str) -> str:
    """Return path and query of a target, also of one in absolute form, as clients send it to an HTTP proxy."""
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in {"http", "https"}:
        return "/" + rest.partition("/")[2]
    return target


def _resource_request(
    method: str, group_version: tuple[str, str], parts: list[str], query: dict[str, str]
) -> RequestInfo:
    verb = _VERBS.get(method, method.lower())
    if parts[0] in _VERBS_IN_THE_PATH:
        verb, parts = parts[0], parts[1:]
    namespace, parts = _split_namespace(parts)
    resource, name, subresource = [*parts, "", "", ""][:3]
    if not resource:
        return RequestInfo(verb=method.lower())
    if not name:
        name = _name_of_field_selector(query) if verb == "get" else ""
        verb = _verb_for_collection(verb, query)
    return RequestInfo(
        verb=verb,
        is_resource=True,
        group=group_version[0],
        version=group_version[1],
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        is_dry_run="dryRun" in query,
    )


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Return the namespace and what follows it; a Namespace object lies in the namespace of its own name."""
    match parts:
        case ["namespaces", namespace, resource, *_] if resource not in _SUBRESOURCES_OF_NAMESPACES:
            return namespace, parts[2:]
        case ["namespaces", namespace, *_]:
            return namespace, parts
    return "", parts


def _verb_for_collection(verb: str, query: dict[str, str]) -> str:
    if verb == "delete":
        return "deletecollection"
    if verb != "get":
        return verb
    return "watch" if query.get("watch", "false") not in {"false", "0"} else "list"


def _name_of_field_selector(query: dict[str, str]) -> str:
    for requirement in query.get("fieldSelector", "").split(","):
        if requirement.startswith(_BY_NAME):
            return requirement.removeprefix(_BY_NAME).removeprefix("=")
    return ""
