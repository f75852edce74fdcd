"""An API server in memory, with the calls of the collection's modules."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, ResourceNotFoundError

Object = dict[str, Any]


def error(kind: type[Exception], status: int) -> Exception:
    """Return an error of the dynamic client."""
    raised: Exception = kind(ApiException(status=status, reason="because"))
    return raised


class Response:
    """A response of the dynamic client."""

    def __init__(self, obj: Object) -> None:
        self._obj = deepcopy(obj)

    def to_dict(self) -> Object:
        """Return the object."""
        return self._obj


class Status:
    """The status subresource of a kind; the first ``conflicts`` writes fail."""

    def __init__(self, server: "Server", conflicts: int) -> None:
        self._server = server
        self._conflicts = conflicts

    def replace(self, body: Object, name: str, namespace: str) -> Response:
        """Write the status, or raise a conflict."""
        if self._conflicts:
            self._conflicts -= 1
            raise error(ConflictError, 409)
        self._server.objects[namespace, name]["status"] = body["status"]
        return Response(self._server.objects[namespace, name])


class Server:
    """Objects by namespace and name, and the calls of the client that the modules make."""

    def __init__(self, *objects: Object, conflicts: int = 0) -> None:
        self.objects = {(each["metadata"]["namespace"], each["metadata"]["name"]): deepcopy(each) for each in objects}
        self.patch_types: list[str] = []
        self._status = Status(self, conflicts)

    def resource(self, kind: str, api_version: str) -> SimpleNamespace:
        """Return a kind."""
        if kind == "Missing":
            raise ResourceNotFoundError
        subresources = {} if kind == "Stateless" else {"status": self._status}
        return SimpleNamespace(kind=kind, api_version=api_version, subresources=subresources, status=self._status)

    def get(self, _resource: object, name: str, namespace: str) -> Response:
        """Return an object."""
        if (namespace, name) not in self.objects:
            raise error(NotFoundError, 404)
        return Response(self.objects[namespace, name])

    def create(self, _resource: object, body: Object, namespace: str) -> Response:
        """Store a new object."""
        self.objects[namespace, body["metadata"]["name"]] = deepcopy(body)
        return Response(body)

    def patch(self, _resource: object, body: Object, content_type: str, name: str, namespace: str) -> Response:
        """Replace fields of an object."""
        self.patch_types.append(content_type)
        self.objects[namespace, name] |= deepcopy(body)
        return Response(self.objects[namespace, name])

    def delete(self, _resource: object, name: str, namespace: str) -> None:
        """Remove an object."""
        del self.objects[namespace, name]
