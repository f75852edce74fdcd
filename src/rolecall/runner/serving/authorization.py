"""Whether a client may read what a server has: the API server reviews its token.

Programs show the token as a bearer token. A browser can only ask for a name and a password, so the token may also be
the password, with any name, where a server says so.
"""

import base64
import binascii

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.runner.serving.token_reviews import TokenReviewer, Verdict
from rolecall.system.logs import get_logger

logger = get_logger("serving")

_FORBIDDEN = web.HTTPForbidden.status_code


async def refusal(
    request: web.Request, reviewer: TokenReviewer, path: str, *, takes_password: bool = False
) -> web.Response | None:
    """Return the answer to a request that is not authorized to read ``path``, None if it is.

    With ``takes_password`` a browser asks its user for the token.
    """
    token = _token(request.headers.get("Authorization", ""), takes_password=takes_password)
    if not token:
        return _unauthorized(takes_password=takes_password)
    try:
        verdict = await reviewer.authorize(token, request.method.lower(), path)
    except KubeError as error:
        logger.error("Cannot authenticate a client", path=path, error=str(error))  # noqa: TRY400
        return web.Response(status=500, text="Authentication failed\n")
    if verdict is Verdict.UNAUTHENTICATED:
        return _unauthorized(takes_password=takes_password)
    return web.Response(status=_FORBIDDEN, text="Forbidden\n") if verdict is Verdict.FORBIDDEN else None


def _unauthorized(*, takes_password: bool) -> web.Response:
    challenge = 'Basic realm="rolecall: any name, and a token as the password"' if takes_password else "Bearer"
    return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": challenge})


def _token(header: str, *, takes_password: bool) -> str:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic" and takes_password:
        try:
            return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2].strip()
        except (binascii.Error, ValueError):
            return ""
    return ""
