"""The API endpoint for runs.

Each run gets a URL on loopback and its own secret. Through the proxy it reaches the API server with the operator's
permissions until the run ends. The proxy injects the primary as the owner of created objects, reports dependent kinds
so that they are watched, and records the run's writes so that they do not trigger another reconcile.
"""

from rolecall.runner.proxy.forward import NewTraceparent
from rolecall.runner.proxy.ownership import Owner, Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import (
    Exchange,
    OnExchange,
    ProxiedRequest,
    ProxyCredentials,
    RequestInterceptor,
    RequestOrigin,
    SessionSpec,
)

__all__ = [
    "Exchange",
    "NewTraceparent",
    "OnExchange",
    "Owner",
    "Ownership",
    "ProxiedRequest",
    "Proxy",
    "ProxyCredentials",
    "RequestInterceptor",
    "RequestOrigin",
    "SessionSpec",
]
