"""An API server in memory, at the level of HTTP: a request and its response, without sockets, time, or chance.

``SimulatedApiServer`` follows the rules of the real one; ``tests/integration/test_simulated_api_server.py`` compares
both. It is synchronous, and each request is one moment. The README of this directory lists what isn't simulated.
Objects in responses and events are copies, which callers may change.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rolecall.kube.references import GVK, RawObject
from tests.simulation import apply
from tests.simulation.controllers import Controllers
from tests.simulation.deletions import Deletions
from tests.simulation.kinds import DEFAULT_KINDS, NAMESPACE, POD, Problem, ServedKind, discovery
from tests.simulation.lists import check_version_of_get, list_object, read_list, selection
from tests.simulation.objects import (
    MalformedError,
    content_problems,
    decoded,
    in_version,
    is_same,
    metadata_problems,
    metadata_update_problems,
    shown,
)
from tests.simulation.patches import MalformedPatchError, UnappliedPatchError, json_patch, merge_patch
from tests.simulation.requests import (
    PARTIAL,
    PARTIAL_LIST,
    Answer,
    Call,
    DeleteOptions,
    RequestError,
    accepted,
    bad_request,
    check_content_type,
    conflict,
    failure,
    invalid,
    key_of,
    not_allowed,
    not_found,
    not_served,
    not_simulated,
    parse_path,
    partial,
    version_number,
)
from tests.simulation.storage import Snapshot, Store, Watch, expired_error

__all__ = ["Answer", "ServedKind", "SimulatedApiServer", "Watch"]

_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_APPLY_PATCH: Final = ("application/apply-patch+yaml", "application/apply-patch+cbor")
_META: Final = "meta.k8s.io"
_UNNAMED_MANAGER: Final = "Swagger-Codegen"
_PERMANENT: Final = ("default", "kube-public", "kube-system")
_NOTHING: Final[Mapping[str, str]] = {}


class SimulatedApiServer:
    """An API server with its storage; ``now`` returns the seconds since the epoch.

    ``history`` has every change in order as (version, type, object after it). The functions of ``on_change`` are called
    after each change. uids and generated names come from counters.
    """

    def __init__(self, now: Callable[[], float], kinds: Sequence[ServedKind] = DEFAULT_KINDS) -> None:
        self._kinds = {kind.gvk: kind for kind in kinds}
        self._by_path = {(gvk.group, gvk.version, kind.name): kind for gvk, kind in self._kinds.items()}
        self._store = Store()
        self._watches: list[tuple[ServedKind, Watch]] = []
        self._deletions = Deletions(self._store, now)
        self._controllers = Controllers(self._kinds, self._store, self._deletions)
        self._uids, self._names = itertools.count(1), itertools.count(1)
        self.history = self._store.history
        self.on_change = self._store.on_change
        if NAMESPACE in self._kinds:
            self.handle("POST", "/api/v1/namespaces", body={"metadata": {"name": "default"}})

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._store.version

    @property
    def kinds(self) -> tuple[ServedKind, ...]:
        """The kinds that are served."""
        return tuple(self._kinds.values())

    def objects(self, gvk: GVK) -> list[RawObject]:
        """Return copies of all objects of a kind, by namespace and name."""
        kind = self._kinds[gvk]
        return [shown(kind, obj) for _, obj in sorted(self._store.objects.get(kind.resource, {}).items())]

    def object(self, gvk: GVK, namespace: str, name: str) -> RawObject | None:
        """Return a copy of an object, None if it doesn't exist."""
        kind = self._kinds[gvk]
        obj = self._store.get(kind.resource, key_of(namespace, name))
        return None if obj is None else shown(kind, obj)

    def handle(  # noqa: PLR0913, PLR0917 - the parts of a request
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = _NOTHING,
        body: RawObject | list[Any] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Answer:
        """Carry out a request and return the response; an error is a Status. ``path`` has no query."""
        try:
            route = parse_path(path)
            if route is None and method == "GET" and (document := discovery(self.kinds, path, accept)):
                return Answer(200, document)
            return self._handle(method, self._call(path, query, body, accept, content_type))
        except MalformedError as error:
            return bad_request(f"the body cannot be handled: {error}").answer
        except RequestError as error:
            return error.answer

    def watch(self, path: str, query: Mapping[str, str] = _NOTHING, accept: str = "application/json") -> Answer | Watch:
        """Start a watch; an expired version is an ERROR event, every other error a response."""
        try:
            return self._watch(self._call(path, query, None, accept, ""))
        except RequestError as error:
            return error.answer

    def collect_garbage(self) -> bool:
        """Do one step of the garbage collector, for one object; return whether something changed."""
        return self._controllers.collect_garbage()

    def finish_namespaces(self) -> bool:
        """Do one step of the namespace controller, for one namespace; return whether something changed."""
        return self._controllers.finish_namespaces()

    def compact(self, version: int) -> None:
        """Forget the changes up to a version: watches and lists from before it expire."""
        self._store.compacted = max(self._store.compacted, min(version, self._store.version))

    def snapshot(self) -> Snapshot:
        """Return everything that is stored now, for ``restore``."""
        return self._store.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Return to an earlier state, its version included; watches end, and uids are never used again."""
        self._close_watches()
        self._store.restore(snapshot)

    def add_kind(self, kind: ServedKind) -> None:
        """Serve another kind from now on."""
        self._kinds[kind.gvk] = kind
        self._by_path[kind.gvk.group, kind.gvk.version, kind.name] = kind

    def remove_kind(self, gvk: GVK) -> None:
        """Delete the objects of a kind and serve it no longer; its watches end after these deletions."""
        kind = self._kinds.pop(gvk)
        del self._by_path[gvk.group, gvk.version, kind.name]
        for key in sorted(self._store.objects.get(kind.resource, ())):
            self._store.delete(kind.resource, key)
        self._close_watches(kind)

    def _close_watches(self, kind: ServedKind | None = None) -> None:
        for each, watch in self._watches:
            if kind in (None, each):
                watch.end()
        self._watches = [(each, watch) for each, watch in self._watches if not watch.is_closed]

    def _call(self, path: str, query: Mapping[str, str], body: Any, accept: str, content_type: str) -> Call:
        route = parse_path(path)
        kind = self._by_path.get((route.group, route.version, route.plural)) if route else None
        if route is None or kind is None or (route.namespace and not kind.is_namespaced):
            raise not_served()
        if kind.is_namespaced and route.name and not route.namespace:
            raise not_served()
        accepted(accept)
        return Call(kind, route, query, body, accept, content_type.partition(";")[0].strip())

    def _handle(self, method: str, call: Call) -> Answer:  # noqa: C901, PLR0911 - one branch for each verb
        is_status = call.route.subresource == "status" and call.kind.has_status
        if call.route.subresource and not is_status:
            raise not_found(call.kind, call.route.name) if call.kind.is_custom else not_served()
        if method in ("PUT", "PATCH") and call.kind.is_custom and not call.route.name:
            raise bad_request("name must be provided")
        if method == "POST" and call.kind.is_custom and not call.route.subresource:
            return self._create(replace(call, route=replace(call.route, name="")))
        if not call.route.name:
            match method:
                case "GET":
                    return self._list(call)
                case "POST" if call.route.namespace or not call.kind.is_namespaced:
                    return self._create(call)
                case "DELETE" if call.kind.gvk != NAMESPACE and (call.route.namespace or not call.kind.is_namespaced):
                    return self._delete_collection(call)
            raise not_allowed(call.kind)
        match method:
            case "GET":
                check_version_of_get(self._store, call.query)
                return self._shown(call, 200, self._existing(call))
            case "PUT":
                return self._replace(call)
            case "PATCH":
                return self._patch(call)
            case "DELETE" if not call.route.subresource:
                return self._delete(call)
        raise not_allowed(call.kind)

    def _shown(self, call: Call, status: int, obj: RawObject) -> Answer:
        return Answer(status, self._view(call)(obj))

    def _view(self, call: Call) -> Callable[[RawObject], RawObject]:
        """Return the function that copies an object in the requested format."""
        if accepted(call.accept) == PARTIAL:
            return partial
        if accepted(call.accept) == PARTIAL_LIST:
            message = "you requested a list, but the requested object is none"
            raise RequestError(500, "", message) if call.kind.is_custom else RequestError(406, "NotAcceptable", message)
        return lambda obj: shown(call.kind, obj)

    def _existing(self, call: Call) -> RawObject:
        obj = self._store.get(call.kind.resource, call.key)
        if obj is None:
            raise not_found(call.kind, call.route.name)
        return obj

    def _list(self, call: Call) -> Answer:
        metadata, objects = read_list(self._store, call)
        return Answer(200, list_object(call, metadata, objects))

    def _watch(self, call: Call) -> Answer | Watch:
        if "sendInitialEvents" in call.query:
            raise not_simulated("sendInitialEvents")
        selects = selection(call.kind, call.query, call.route)
        since = version_number(call.query.get("resourceVersion") or "0")
        resource, view, empty = call.kind.resource, self._view(call), _empty(call.kind)
        watch = Watch(self._store, resource, since or self._store.version, selects, lambda obj: view({**empty, **obj}))
        if not since:
            found = sorted(self._store.objects.get(resource, {}).items())
            watch.begin_with([obj for key, obj in found if selects(key, obj)])
        elif since < self._store.compacted:
            watch.expire(expired_error(since, self._store.compacted))
        self._watches = [(kind, each) for kind, each in self._watches if not each.is_closed]
        self._watches.append((call.kind, watch))
        return watch

    def _decoded(self, call: Call, body: Any) -> RawObject:
        """Return the object in a body, of the right kind, name, and namespace. Raise MalformedError or RequestError."""
        kind, route = call.kind, call.route
        if not isinstance(body, dict):
            raise bad_request(f"expected an object of kind {kind.gvk.kind}")
        version, found = body.get("apiVersion"), body.get("kind")
        if kind.is_custom:  # another kind is a validation error
            is_other = version != kind.gvk.api_version or not isinstance(found, str) or not found
        else:
            is_other = (version or kind.gvk.api_version, found or kind.gvk.kind) != (
                kind.gvk.api_version,
                kind.gvk.kind,
            )
        if is_other:
            raise bad_request(f"expected {kind.gvk}, found apiVersion {version!r}, kind {found!r}")
        obj = decoded(kind, body)
        metadata = obj["metadata"]
        if route.name and metadata.get("name") != route.name:
            raise bad_request("the name of the object does not match the name on the URL")
        if not kind.is_namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", route.namespace) != route.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        return obj

    def _create(self, call: Call) -> Answer:
        check_content_type(call)
        is_dry_run = call.is_dry_run("CreateOptions")
        return self._create_object(call, self._decoded(call, call.body), is_dry_run=is_dry_run)

    def _create_object(self, call: Call, obj: RawObject, *, is_dry_run: bool) -> Answer:
        kind, metadata = call.kind, obj["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        if prefix := "" if metadata.get("name") else metadata.get("generateName"):
            metadata["name"] = f"{prefix[:58]}{next(self._names):05}"
        self._admit(call, metadata.get("name") or "")
        metadata |= {
            "uid": f"00000000-0000-4000-8000-{next(self._uids):012}",
            "creationTimestamp": self._deletions.time(),
        }
        if kind.has_generation:
            metadata["generation"] = 1
        self._prepare_for_create(kind, obj)
        self._validate(kind, obj, metadata_problems(kind, metadata) + content_problems(kind, obj))
        key = key_of(call.route.namespace, metadata["name"])
        if not is_dry_run and metadata.pop("resourceVersion", "0") != "0":
            raise RequestError(500, "", "resourceVersion should not be set on objects to be created")
        if self._store.get(kind.resource, key) is not None:
            raise failure(kind, metadata["name"], 409, "AlreadyExists", "already exists")
        return self._shown(call, 201, obj if is_dry_run else self._store.put(kind.resource, key, obj))

    def _admit(self, call: Call, name: str) -> None:
        """Raise RequestError if the namespace of a new object doesn't exist or is being deleted."""
        namespace = call.route.namespace
        if not namespace or NAMESPACE not in self._kinds:
            return
        kind = self._kinds[NAMESPACE]
        obj = self._store.get(kind.resource, namespace)
        if obj is None:
            raise not_found(kind, namespace)
        if obj["status"].get("phase") == "Terminating":
            message = (
                f"is forbidden: unable to create new content in namespace {namespace} because it is being terminated"
            )
            error = failure(call.kind, name, 403, "Forbidden", message)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            error.details = {**(error.details or {}), "causes": [{**cause, "field": "metadata.namespace"}]}
            raise error

    def _prepare_for_create(self, kind: ServedKind, obj: RawObject) -> None:
        if kind.gvk == NAMESPACE:
            obj["status"] = {"phase": "Active"}
            obj["spec"] = {"finalizers": [*(obj["spec"].get("finalizers") or ()), "kubernetes"]}
            _add_name_label(obj)
        elif kind.gvk == POD:
            obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        elif kind.is_custom and kind.has_status:
            obj.pop("status", None)

    def _validate(self, kind: ServedKind, obj: RawObject, problems: Sequence[Problem]) -> None:
        if problems:
            raise invalid(kind.gvk.group, obj["kind"], obj["metadata"].get("name") or "", problems)

    def _replace(self, call: Call) -> Answer:
        check_content_type(call)
        is_dry_run = call.is_dry_run("UpdateOptions")
        obj = self._decoded(call, call.body)
        creates = call.kind.creates_on_update and not call.route.subresource
        existing = self._store.get(call.kind.resource, call.key) if creates else self._existing(call)
        if not obj["metadata"].get("resourceVersion", "0").isdecimal():
            raise RequestError(500, "", "parsing the resourceVersion: invalid syntax")
        if existing is None:
            if obj["metadata"].get("uid"):
                raise conflict(call.kind, call.route.name, "Precondition failed: UID in precondition")
            if not is_dry_run:
                obj["metadata"].pop("resourceVersion", None)
            return self._create_object(call, obj, is_dry_run=is_dry_run)
        if obj["metadata"].get("uid") not in (None, existing["metadata"]["uid"]):
            raise conflict(call.kind, call.route.name, "Precondition failed: UID in precondition")
        return self._update(call, existing, obj, is_dry_run=is_dry_run)

    def _patch(self, call: Call) -> Answer:
        kind = call.kind
        if call.content_type in _APPLY_PATCH:
            return self._apply(call)
        if call.content_type == _STRATEGIC_PATCH and not kind.is_custom:
            raise not_simulated("a strategic merge patch")
        if call.content_type not in (_MERGE_PATCH, _JSON_PATCH):
            raise RequestError(415, "UnsupportedMediaType", f"unsupported media type {call.content_type!r}")
        is_dry_run = call.is_dry_run("PatchOptions")
        existing = self._existing(call)
        current = in_version(kind, existing)
        if call.content_type == _MERGE_PATCH:
            if not isinstance(call.body, dict):
                raise bad_request("error decoding patch: expected an object")
            patched = merge_patch(current, call.body)
        else:
            patched = self._json_patched(current, call.body)
        if not isinstance(patched, dict):
            raise invalid("", "", "", [("patch", "the patched object isn't an object")])
        self._check_patched(call, patched)
        try:
            obj = self._decoded(call, patched)
        except MalformedError as error:
            raise invalid("", "", "", [("patch", str(error))]) from error
        return self._update(call, existing, obj, is_dry_run=is_dry_run)

    def _apply(self, call: Call) -> Answer:
        """Carry out a server-side apply, which creates a missing object."""
        kind, name, manager = call.kind, call.route.name, call.query.get("fieldManager")
        is_dry_run = call.is_dry_run("PatchOptions")
        if call.route.subresource:
            raise not_simulated("server-side apply of a subresource")
        if not manager:
            raise invalid(_META, "PatchOptions", "", [("fieldManager", "Required value: is required for apply patch")])
        if isinstance(call.body, dict) and (call.body.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        desired = self._decoded(call, call.body)
        existing = self._store.get(kind.resource, call.key)
        expected = {each: desired["metadata"].get(each) for each in ("uid", "resourceVersion")}
        if existing is None and (expected["uid"] or expected["resourceVersion"]):
            raise conflict(kind, name, "the object to apply to doesn't exist")
        names = {each: desired["metadata"][each] for each in ("name", "namespace") if each in desired["metadata"]}
        live = existing or {**_empty(kind), "metadata": names}
        try:
            is_forced = call.query.get("force") == "true"
            obj = apply.applied(live, desired, manager, is_forced=is_forced, now=self._deletions.time())
        except apply.ApplyConflictError as error:
            raise conflict(kind, name, f"Apply failed with conflicts: {error}") from error
        if existing is None:
            return self._create_object(call, obj, is_dry_run=is_dry_run)
        for each, value in expected.items():
            if value:
                obj["metadata"][each] = value
        if expected["uid"] not in (None, existing["metadata"]["uid"]):
            raise conflict(kind, name, "Precondition failed: UID in precondition")
        return self._update(call, existing, obj, is_dry_run=is_dry_run)

    def _check_patched(self, call: Call, patched: RawObject) -> None:
        """Raise RequestError for a patched object that can't be decoded, which is invalid."""
        kind = call.kind
        version, name = patched.get("apiVersion"), patched.get("kind")
        if kind.is_custom and isinstance(version, str) and isinstance(name, str) and version != kind.gvk.api_version:
            problem = ("apiVersion", f"must be {kind.gvk.api_version}")
            raise invalid(version.rpartition("/")[0], name, call.route.name, [problem])
        if (version, name) != (kind.gvk.api_version, kind.gvk.kind) and not kind.is_custom:
            raise invalid("", "", "", [("patch", f"no kind {name!r} is registered for {version!r}")])

    def _json_patched(self, current: RawObject, operations: Any) -> Any:
        try:
            return json_patch(current, operations)
        except MalformedPatchError as error:
            raise bad_request(str(error)) from error
        except UnappliedPatchError as error:
            raise RequestError(422, "Invalid", str(error), {}) from error

    def _update(self, call: Call, old: RawObject, obj: RawObject, *, is_dry_run: bool) -> Answer:
        """Store the new state of an existing object, and return the response."""
        kind, name, metadata = call.kind, call.route.name, obj["metadata"]
        version = metadata.get("resourceVersion")
        if not version and not kind.updates_without_version:
            problem = ("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(kind.gvk.group, kind.name, name, [problem])
        if version and version != old["metadata"]["resourceVersion"]:
            message = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, name, message)
        obj = self._prepare_for_update(call, old, obj)
        self._keep_metadata(obj["metadata"], old["metadata"])
        if call.content_type not in _APPLY_PATCH:
            manager = call.query.get("fieldManager") or _UNNAMED_MANAGER
            obj = apply.updated(old, obj, manager, self._deletions.time())
        problems = metadata_update_problems(kind, obj["metadata"], old["metadata"]) + content_problems(kind, obj, old)
        self._validate(kind, obj, problems)
        if old["metadata"].get("deletionGracePeriodSeconds") == 0 and not obj["metadata"].get("finalizers"):
            if not is_dry_run:
                self._store.delete(kind.resource, call.key)
            return self._shown(call, 200, obj)
        if is_same(obj, old) or is_dry_run:
            return self._shown(call, 200, obj)
        return self._shown(call, 200, self._store.put(kind.resource, call.key, obj))

    def _prepare_for_update(self, call: Call, old: RawObject, obj: RawObject) -> RawObject:
        """Return the object with those fields of the old one that this request can't change."""
        kind = call.kind
        if call.route.subresource and kind.is_custom:
            status = {"status": obj["status"]} if "status" in obj else {}
            return {
                **{name: value for name, value in old.items() if name != "status"},
                **status,
                "metadata": {**old["metadata"]},
            }
        if call.route.subresource:
            return {**obj, "spec": old.get("spec", {})}
        if kind.has_status:
            status = {"status": old["status"]} if "status" in old else {}
            obj = {**{name: value for name, value in obj.items() if name != "status"}, **status}
        if kind.gvk == NAMESPACE:
            obj["spec"] = old["spec"]
            _add_name_label(obj)
        generation = old["metadata"].get("generation")
        obj["metadata"] = {**obj["metadata"], "generation": generation}
        if kind.has_generation and not is_same(_content(obj), _content(old)):
            obj["metadata"]["generation"] = generation + 1
        return obj

    def _keep_metadata(self, metadata: RawObject, old: RawObject) -> None:
        """Set those fields of new metadata that no request changes."""
        metadata.setdefault("uid", old["uid"])
        metadata |= {
            name: old[name] for name in ("creationTimestamp", "resourceVersion", "deletionTimestamp") if name in old
        }
        if "deletionGracePeriodSeconds" in old:
            metadata.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])
        if "generation" not in old:
            metadata.pop("generation", None)
        else:
            metadata["generation"] = metadata.get("generation") or old["generation"]

    def _delete(self, call: Call) -> Answer:
        options = DeleteOptions.of(call)
        if call.kind.gvk == NAMESPACE and call.route.name in _PERMANENT:
            raise failure(
                call.kind, call.route.name, 403, "Forbidden", "is forbidden: this namespace may not be deleted"
            )
        obj, is_deleted = self._deletions.delete(call.kind, call.key, options)
        is_object = call.kind.returns_deleted or not is_deleted
        status = 202 if options.is_orphaning is False and not is_deleted else 200
        return self._shown(call, status, obj) if is_object else Answer(status, _deleted(call.kind, obj))

    def _delete_collection(self, call: Call) -> Answer:
        metadata, objects = read_list(self._store, call)
        options = DeleteOptions.of(call)
        for obj in objects:
            self._deletions.delete(call.kind, key_of(call.route.namespace, obj["metadata"]["name"]), options)
        return Answer(200, list_object(call, metadata, objects))


def _empty(kind: ServedKind) -> RawObject:
    """Return an object without any field but its kind, as stored."""
    gvk = kind.stored_as or kind.gvk
    return {"kind": gvk.kind, "apiVersion": gvk.api_version}


def _add_name_label(namespace: RawObject) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata.get("name", "")}


def _content(obj: RawObject) -> RawObject:
    """Return what counts up the generation when it changes."""
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _deleted(kind: ServedKind, obj: RawObject) -> RawObject:
    """Return the Status of a successful deletion."""
    details = {
        "name": obj["metadata"]["name"],
        "group": kind.gvk.group,
        "kind": kind.name,
        "uid": obj["metadata"]["uid"],
    }
    details = {name: value for name, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
