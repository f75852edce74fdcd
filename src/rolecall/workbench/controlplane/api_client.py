"""A minimal client for the control plane's own requests to its API server.

It uses the HTTP client of the standard library, which imports quickly, with the administrator's certificate. It returns
every response, regardless of its status, and raises OSError if the server doesn't respond.
"""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUEST_TIMEOUT_SECONDS = 10.0
READINESS_TIMEOUT_SECONDS = 2.0  # another process on our port may accept and never answer


@dataclass(frozen=True)
class Response:
    """A response of the API server: the HTTP status and the object (``{"message": text}`` if the body is not JSON)."""

    status: int
    content: dict[str, Any]

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return http.HTTPStatus.OK <= self.status < http.HTTPStatus.MULTIPLE_CHOICES

    @property
    def message(self) -> str:
        """The message of a Status object, or an empty string."""
        return str(self.content.get("message", ""))


class ApiClient:
    """A client of one API server, with the administrator's permissions."""

    def __init__(self, host: str, port: int, certificates: Path) -> None:
        """Take the address and the directory with authority.crt, admin.crt and admin.key."""
        self._host = host
        self._port = port
        self._context = ssl.create_default_context(cafile=certificates / "authority.crt")
        self._context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")

    def request(
        self, method: str, path: str, body: object = None, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> Response:
        """Send a request and return the response. Raise OSError or http.client.HTTPException without one."""
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_seconds, context=self._context)
        try:
            encoded = None if body is None else json.dumps(body).encode()
            connection.request(
                method, path, encoded, {"Content-Type": "application/json", "Accept": "application/json"}
            )
            answer = connection.getresponse()
            return Response(answer.status, _decode(answer.read()))
        finally:
            connection.close()

    def get(self, path: str) -> Response:
        """Return the response to a GET request for an object or a list."""
        return self.request("GET", path)

    def is_ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        return self.request("GET", "/readyz", timeout_seconds=READINESS_TIMEOUT_SECONDS).is_success


def _decode(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {"message": body.decode(errors="replace")}
