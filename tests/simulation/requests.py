"""Requests to the simulated API server in parsed form, its responses, and their errors as Status objects."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from rolecall.kube.references import RawObject
from tests.simulation.kinds import Problem, ServedKind
from tests.simulation.objects import ORPHAN
from tests.simulation.storage import copied

PARTIAL, PARTIAL_LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
_META: Final = "meta.k8s.io"
_POLICIES: Final = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status and its JSON body."""

    status: int
    body: RawObject


class RequestError(Exception):
    """A request that fails: the status, the reason, the message, and the details of its Status."""

    def __init__(self, status: int, reason: str, message: str, details: RawObject | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.details = status, reason, message, details

    @property
    def answer(self) -> Answer:
        """The response."""
        body: RawObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message, "reason": self.reason, "details": self.details, "code": self.status}
        return Answer(self.status, {name: value for name, value in body.items() if value not in ("", None)})


def not_served() -> RequestError:
    """Return the error of a path that the server doesn't know; it names no object."""
    return RequestError(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed(kind: ServedKind) -> RequestError:
    """Return the error of a method that a path doesn't have; only that of a CRD names the resource."""
    message = "the server does not allow this method on the requested resource"
    return RequestError(
        405, "MethodNotAllowed", message, {"group": kind.gvk.group, "kind": kind.name} if kind.is_custom else {}
    )


def not_simulated(what: str) -> RequestError:
    """Return the error of a request that the real API server would serve."""
    return RequestError(501, "NotImplemented", f"{what} isn't simulated")


def bad_request(message: str) -> RequestError:
    """Return the error of a request that can't be decoded."""
    return RequestError(400, "BadRequest", message)


def failure(kind: ServedKind, name: str, status: int, reason: str, message: str) -> RequestError:
    """Return an error about an object, with the resource in its details."""
    details = {"name": name, "group": kind.gvk.group, "kind": kind.name}
    full = f"{kind.name}{'.' if kind.gvk.group else ''}{kind.gvk.group} {json.dumps(name)} {message}"
    return RequestError(status, reason, full, {key: value for key, value in details.items() if value})


def not_found(kind: ServedKind, name: str) -> RequestError:
    """Return the error of an object that doesn't exist."""
    return failure(kind, name, 404, "NotFound", "not found")


def conflict(kind: ServedKind, name: str, message: str) -> RequestError:
    """Return the error of a write that expects another state of the object."""
    return failure(kind, name, 409, "Conflict", message)


def failed_precondition(kind: ServedKind, name: str, expected: str) -> RequestError:
    """Return the error of a deletion of another object, or of another version; it names the kind, not the resource."""
    error = conflict(kind, name, f"the precondition {expected} does not match the object")
    error.details = {**(error.details or {}), "kind": kind.gvk.kind}
    return error


def invalid(group: str, kind: str, name: str, problems: Iterable[Problem]) -> RequestError:
    """Return the error of invalid fields."""
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": path} for path, text in problems]
    message = f"{kind}.{group} {name!r} is invalid: " + ", ".join(
        f"{each['field']}: {each['message']}" for each in causes
    )
    details: RawObject = {"name": name, "group": group, "kind": kind, "causes": causes}
    return RequestError(422, "Invalid", message, {key: value for key, value in details.items() if value})


@dataclass(frozen=True, slots=True)
class Route:
    """The resource that a path leads to; names that don't apply are empty."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=4096)
def parse_path(path: str) -> Route | None:
    """Return the route of a path, None if it leads to no resource."""
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    match rest:
        case ["namespaces", name, "status" | "finalize" as subresource] if not group:
            return Route(group, version, "namespaces", "", name, subresource)
        case ["namespaces", namespace, plural, *more] if len(more) <= 2:
            return Route(group, version, plural, namespace, *more)
        case [plural, *more] if len(more) <= 2:
            return Route(group, version, plural, "", *more)
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a kind that is served."""

    kind: ServedKind
    route: Route
    query: Mapping[str, str]
    body: Any
    accept: str
    content_type: str = ""

    @property
    def key(self) -> str:
        """The key of the object in the storage."""
        return key_of(self.route.namespace, self.route.name)

    def is_dry_run(self, options: str) -> bool:
        """Return whether nothing must change; ``options`` is the kind of the query. Raise RequestError."""
        return _is_dry_run(self.query.get("dryRun"), options)


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object in the storage; their order is that of lists."""
    return f"{namespace}/{name}" if namespace else name


def _is_dry_run(value: Any, options: str) -> bool:
    if value in (None, "", []):
        return False
    if value not in ("All", ["All"]):
        raise invalid(_META, options, "", [("dryRun", f"Unsupported value: {value!r}")])
    return True


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a deletion requests; None means that the request doesn't say."""

    policy: str | None = None
    grace_period_seconds: int | None = None
    uid: str | None = None
    version: str | None = None
    is_dry_run: bool = False
    is_orphaning: bool | None = None
    """The older form of the policy."""

    @classmethod
    def of(cls, call: Call) -> "DeleteOptions":
        """Return the options in the body of a request, or in its query if it has no body. Raise RequestError."""
        body = call.body
        if body is None:
            body = {name: call.query[name] for name in ("dryRun", "propagationPolicy") if name in call.query}
            if "gracePeriodSeconds" in call.query:
                body["gracePeriodSeconds"] = _number(call.query["gracePeriodSeconds"])
        if not isinstance(body, dict) or not isinstance(body.get("preconditions") or {}, dict):
            raise bad_request("expected DeleteOptions")
        policy, orphan = body.get("propagationPolicy"), body.get("orphanDependents")
        if policy is not None and (policy not in _POLICIES or orphan is not None):
            raise invalid(_META, "DeleteOptions", "", [("propagationPolicy", f"Invalid value: {policy!r}")])
        if orphan is not None:
            policy = "Orphan" if orphan else "Background"
        expected = body.get("preconditions") or {}
        is_dry_run = _is_dry_run(body.get("dryRun"), "DeleteOptions")
        seconds = body.get("gracePeriodSeconds")
        return cls(policy, seconds, expected.get("uid"), expected.get("resourceVersion"), is_dry_run, orphan)

    def finalizers(self, current: list[str]) -> list[str]:
        """Return the finalizers with those by which the garbage collector knows the policy."""
        wanted = self.policy or _policy_of(current)
        kept = [name for name in current if name not in _POLICY_FINALIZERS.values()]
        return kept + [name for policy, name in _POLICY_FINALIZERS.items() if policy == wanted]


_POLICY_FINALIZERS: Final = {"Orphan": ORPHAN, "Foreground": "foregroundDeletion"}


def _policy_of(finalizers: list[str]) -> str:
    return next((policy for policy, name in _POLICY_FINALIZERS.items() if name in finalizers), "Background")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"expected an integer, found {text!r}") from error


def version_number(text: str) -> int:
    """Return the number of a resourceVersion. Raise RequestError."""
    if not text.isdecimal():
        raise bad_request(f"Invalid value: {text!r}: invalid resource version")
    return int(text)


@lru_cache(maxsize=1024)
def accepted(accept: str) -> str:
    """Return the first format of an Accept header that is served: empty for plain objects. Raise RequestError."""
    if not accept:
        return ""
    for part in accept.split(","):
        media_type, *parameters = (each.strip() for each in part.split(";"))
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(each.partition("=")[::2] for each in parameters)
        if "as" not in wanted:
            return ""
        if wanted["as"] in (PARTIAL, PARTIAL_LIST) and (wanted.get("g"), wanted.get("v")) == (_META, "v1"):
            return wanted["as"]
    raise RequestError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def check_content_type(call: Call) -> None:
    """Raise RequestError for a body that isn't JSON; a missing type means that it is."""
    if call.content_type not in ("", "application/json"):
        raise RequestError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")


def partial(obj: RawObject) -> RawObject:
    """Return the metadata of an object."""
    return {"kind": PARTIAL, "apiVersion": f"{_META}/v1", "metadata": copied(obj["metadata"])}
