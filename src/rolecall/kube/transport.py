"""How requests reach the API server: TCP connections, and an HTTP proxy if there is one.

The HTTP proxy is that of the kubeconfig, else that of the environment; it is looked up once, not for each request. No
netrc file is read: its ``default`` entry would replace the operator's credentials, and aiohttp reads it in the default
executor, where a request would have to wait for all other work.

TCP itself detects a peer that is lost without closing the connection, as after a power cut: a watch may be silent for
minutes, so silence proves nothing. The kernel of an unresponsive API server still acknowledges.
"""

import ipaddress
import socket
import urllib.request
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import aiohttp

PROBE_AFTER_SECONDS: Final = 15
PROBE_EVERY_SECONDS: Final = 5
DEAD_AFTER_SECONDS: Final = 30
"""How long a connection may lack an acknowledgement; it fails at the next probe."""


def new_session() -> aiohttp.ClientSession:
    """Return a session for requests to the API server. It keeps no cookies.

    The number of connections is not limited, because a watch holds its connection for minutes.
    """
    connector = aiohttp.TCPConnector(limit=0, socket_factory=_probed_socket)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


def probe_peer(connection: socket.socket) -> None:
    """Make a connection fail within 35 s if its peer is lost: while it is idle, and while it has data to send."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_SECONDS * 1000)


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    probe_peer(connection)
    return connection


def http_proxy_of(url: str, configured: str | None) -> str | None:
    """Return the URL of the HTTP proxy for requests to a URL, None for direct requests.

    ``configured`` is the proxy of the kubeconfig; without it, HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply, also in lower
    case, as in client-go: NO_PROXY may contain networks, and requests to loopback addresses never use a proxy. Raise
    ValueError if the proxy is unusable.
    """
    found = configured or _proxy_of_environment(url)
    if found and (parts := urlsplit(found)).scheme not in ("http", "https"):
        without_password = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise ValueError(f"expected an HTTP proxy such as http://proxy.example.com:3128, found {without_password!r}")
    return found


def _proxy_of_environment(url: str) -> str | None:
    target = urlsplit(url)
    proxies = urllib.request.getproxies()
    found = proxies.get(target.scheme)
    if not found or _is_excluded(target.hostname or "", proxies.get("no", "")):
        return None
    if urllib.request.proxy_bypass(target.netloc):
        return None
    return found if "://" in found else f"http://{found}"


def _is_excluded(host: str, excluded: str) -> bool:
    """Return whether a host is loopback, or its address is in an excluded network."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in excluded.split(","):
        with suppress(ValueError):  # a name
            if address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
    return address.is_loopback


def text_of(error: BaseException) -> str:
    """Return the text of a network error without objects of Python, such as TLS contexts or headers."""
    match error:
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {error.os_error}"
        case aiohttp.ClientResponseError():
            return f"{type(error).__name__}: {error}"
    return repr(error)
