"""The API endpoint that a run talks to.

A play is given a URL on loopback and a secret of its own. Through it the play reaches the API server with the
operator's rights, for as long as the run lives. On the way, objects that the play creates get the primary as their
owner, the kinds of dependents are reported so that they get watched, and what the play wrote is noted so that the
operator does not wake itself. Neighbour: ``rolecall.kube.client`` provides the connection to the API server.
"""

from rolecall.proxy.credentials import Credentials
from rolecall.proxy.reads.read_watermark import Seen
from rolecall.proxy.server import Proxy
from rolecall.proxy.sessions import ProxyRun
from rolecall.proxy.writes.ownership import Ownership

__all__ = ["Credentials", "Ownership", "Proxy", "ProxyRun", "Seen"]
