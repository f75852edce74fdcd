"""A request to the API server in parsed form: verb, resource, namespace, name and subresource.

Parsing uses only the method, the path and the query, and follows those of the API server's rules that the proxy needs.
It has no side effects and never raises: a path without a resource is a non-resource request.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote

from rolecall.kube.references import GVK, ObjectKey
from rolecall.kube.selectors import field_requirements

_VERBS: Final = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
READ_VERBS: Final = frozenset({"get", "list", "watch"})
REMOVAL_VERBS: Final = frozenset({"delete", "deletecollection"})
WRITE_VERBS: Final = frozenset({"create", "update", "patch"}) | REMOVAL_VERBS
_PATH_VERBS: Final = frozenset({"proxy", "watch"})
_SUBRESOURCES_OF_NAMESPACES: Final = frozenset({"status", "finalize"})
_RAW_SUBRESOURCES: Final = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_VALID_TARGET: Final = re.compile(r"/[!-~]*")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The attributes of a request; those that do not apply are empty strings.

    ``verb`` is a Kubernetes verb (get, list, watch, create, update, patch, delete, deletecollection, proxy) for a
    resource request, else the HTTP method in lower case.
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
        """Return whether the response has no time limit: a watch, a log, an upgrade, or a non-resource path."""
        return not self.is_resource or self.verb in {"watch", "proxy"} or self.subresource in _RAW_SUBRESOURCES

    @property
    def may_upgrade(self) -> bool:
        """Return whether the request may upgrade to another protocol; writes and plain reads may not."""
        return self.is_long_running or (bool(self.subresource) and not self.is_write)

    @property
    def is_write(self) -> bool:
        """Return whether the request creates, changes or deletes objects."""
        return self.is_resource and self.verb in WRITE_VERBS and self.subresource not in _RAW_SUBRESOURCES

    def tells_absence(self, status: int) -> bool:
        """Return whether a response with this status says that what was requested doesn't exist.

        That of a subresource doesn't: the API server names the object also if its kind has no such subresource.
        """
        return status == HTTPStatus.NOT_FOUND and not self.subresource

    @property
    def is_removal(self) -> bool:
        """Return whether the request deletes objects."""
        return self.verb in REMOVAL_VERBS

    @property
    def group_resource(self) -> tuple[str, str]:
        """Return the group and plural; all versions of a resource share their objects and resourceVersions."""
        return self.group, self.resource

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of the requested objects."""
        return GVK(self.group, self.version, "").api_version

    @property
    def key(self) -> ObjectKey:
        """Return the key of the requested object."""
        return self.key_of(self.name)

    def key_of(self, name: str) -> ObjectKey:
        """Return the key of an object among the requested ones; ``namespace`` of a Namespace is its own name."""
        return ObjectKey("" if self.group_resource == ("", "namespaces") else self.namespace, name)


def parse(method: str, target: str) -> RequestInfo:
    """Parse a request's method and target (path and query, still percent-encoded)."""
    path, _, query_text = origin_form(target).partition("?")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    match unquote(path).strip("/").split("/"):
        case ["api", version, _, *_] as parts:
            group, parts = "", parts[2:]
        case ["apis", group, version, _, *_] as parts:
            parts = parts[3:]
        case _:
            return RequestInfo(verb=method.lower())
    verb = _VERBS.get(method.upper(), method.lower())
    if parts[0] in _PATH_VERBS:
        verb, parts = parts[0], parts[1:]
    namespace, parts = _split_namespace(parts)
    resource, name, subresource = [*parts, "", "", ""][:3]
    if not resource:
        return RequestInfo(verb=method.lower())
    if not name and verb == "get":
        is_watch = query.get("watch", "false") not in {"false", "0"}
        name, verb = _name_in_field_selector(query), "watch" if is_watch else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        is_dry_run="dryRun" in query,
    )


def is_valid_target(target: str) -> bool:
    """Return whether a target in origin form is a path with an optional query, in characters that URLs allow.

    The target is appended to the API server's URL. Any other string could change the meaning of that URL: a fragment
    would be dropped, and a string without a leading slash would become a part of the host.
    """
    return _VALID_TARGET.fullmatch(target) is not None and "#" not in target


def origin_form(target: str) -> str:
    """Return the path and query of a target, which may be in absolute form, as clients send it to an HTTP proxy."""
    return "/" + target.partition("://")[2].partition("/")[2] if authority_of(target) else target


def authority_of(target: str) -> str:
    """Return the host and port of a target in absolute form, without a user; empty for another one."""
    scheme, separator, rest = target.partition("://")
    is_absolute = separator and scheme.lower() in {"http", "https"}
    return rest.partition("/")[0].rpartition("@")[2] if is_absolute else ""


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Return the namespace and the remaining parts; for a Namespace object, the namespace is its own name."""
    match parts:
        case ["namespaces", namespace, resource, *_] if resource not in _SUBRESOURCES_OF_NAMESPACES:
            return namespace, parts[2:]
        case ["namespaces", namespace, *_]:
            return namespace, parts
    return "", parts


def _name_in_field_selector(query: dict[str, str]) -> str:
    try:
        requirements = field_requirements(query.get("fieldSelector", ""))
    except ValueError:  # the API server rejects the request
        return ""
    return next((value for *found, value in requirements if found == ["metadata.name", "="]), "")
