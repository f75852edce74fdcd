"""How requests reach the API server: TCP connections, and an HTTP proxy if there is one.

The HTTP proxy is that of the kubeconfig, else that of the environment; it is looked up once and not for each request.
No netrc file is read: its ``default`` entry would replace the operator's credentials, and aiohttp looks for it in the
default executor, where a request would have to wait for everything else that is there.

A connection whose other end is gone without a word, as after a power cut, is found dead by TCP itself: a watch may be
silent for minutes, so silence alone proves nothing. The kernel of an API server that hangs still answers.
"""

import ipaddress
import socket
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

_PROXY_SCHEMES: Final = ("http", "https")

PROBE_AFTER_SECONDS: Final = 15
PROBE_EVERY_SECONDS: Final = 5
DEAD_AFTER_SECONDS: Final = 30
"""How long a connection may be without an acknowledgement; it is found dead at the next probe."""


def new_session(**options: Any) -> aiohttp.ClientSession:
    """Return a session for requests to the API server; ``options`` are those of ``aiohttp.ClientSession``.

    The number of connections is not limited, because a watch holds its connection for minutes.
    """
    connector = aiohttp.TCPConnector(limit=0, socket_factory=_probed_socket)
    return aiohttp.ClientSession(connector=connector, trust_env=False, **options)


def probe_peer(connection: socket.socket) -> None:
    """Make a connection fail within 35 s if its other end is gone: while it is idle, and while it has data to send."""
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
    """Return the URL of the HTTP proxy for requests to a URL, None if they go to the server itself.

    ``configured`` is the proxy of the kubeconfig; without one, HTTP_PROXY, HTTPS_PROXY and NO_PROXY count, also in
    lower case, as in client-go: NO_PROXY may contain networks, and a loopback address is never reached by a proxy.
    Raise ValueError if the proxy cannot be used.
    """
    found = configured or _proxy_of_environment(url)
    if found and urlsplit(found).scheme not in _PROXY_SCHEMES:
        raise ValueError(f"expected an HTTP proxy such as http://proxy.example.com:3128, found {_bare(found)!r}")
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
    """Return whether a host is loopback, or its address is in one of the networks that are excluded."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in _networks(excluded))


def _networks(excluded: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for entry in excluded.split(","):
        try:
            found.append(ipaddress.ip_network(entry.strip(), strict=False))
        except ValueError:
            continue  # a name
    return found


def _bare(url: str) -> str:
    """Return a URL without the user and the password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
