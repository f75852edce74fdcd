"""The API endpoint for runs.

Each run gets a URL on loopback and its own secret. Through the proxy it reaches the API server with the operator's
permissions until the run ends. The proxy injects the primary as the owner of created objects, reports dependent kinds
so that they are watched, and records the run's writes so that they do not trigger another reconcile.
"""

from rolecall.proxy.credentials import ProxyCredentials
from rolecall.proxy.exchanges import Asker, Exchange, OnExchange
from rolecall.proxy.gate import Gate, GatedRequest
from rolecall.proxy.server import Proxy
from rolecall.proxy.sessions import SessionSpec
from rolecall.proxy.transport.trace_context import NewTraceparent
from rolecall.proxy.writes.ownership import Ownership

__all__ = [
    "Asker",
    "Exchange",
    "Gate",
    "GatedRequest",
    "NewTraceparent",
    "OnExchange",
    "Ownership",
    "Proxy",
    "ProxyCredentials",
    "SessionSpec",
]
