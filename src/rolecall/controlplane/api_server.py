"""The few requests that the control plane itself makes to its API server.

Only what starting, watching over and handing out needs: a path, a method, an object in and an object out, as the
administrator, over the standard library's HTTP client, which starts in no time. A server that does not answer (yet)
is an OSError, an answer of the server is given back whatever its status. Operators use a real client, in
rolecall.kube.
"""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUEST_TIMEOUT_SECONDS = 10.0
READINESS_TIMEOUT_SECONDS = 2.0  # whoever took our port may accept and never answer


@dataclass(frozen=True)
class Response:
    """What the API server answered: the HTTP status and the object (text that is no JSON is its "message")."""

    status: int
    content: dict[str, Any]

    @property
    def is_success(self) -> bool:
        """Say whether the request did what it asked for."""
        return http.HTTPStatus.OK <= self.status < http.HTTPStatus.MULTIPLE_CHOICES

    @property
    def message(self) -> str:
        """What the server says about it."""
        return str(self.content.get("message", ""))


class ApiServer:
    """Requests to one API server as its administrator."""

    def __init__(self, host: str, port: int, certificates: Path) -> None:
        """Take the address and the folder that holds authority.crt, admin.crt and admin.key."""
        self._host = host
        self._port = port
        self._context = ssl.create_default_context(cafile=certificates / "authority.crt")
        self._context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")

    def request(
        self, method: str, path: str, body: object = None, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> Response:
        """Send one request and read the whole answer; OSError or http.client.HTTPException if there is none."""
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
        """Read an object or a list."""
        return self.request("GET", path)

    def is_ready(self) -> bool:
        """Say whether the API server says of itself that it is ready, its own start-up work included."""
        return self.request("GET", "/readyz", timeout_seconds=READINESS_TIMEOUT_SECONDS).is_success


def _decode(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {"message": body.decode(errors="replace")}
