"""The API endpoint that a run talks to.

A play is given a URL on loopback and a secret of its own. Through it the play reaches the API server with the
operator's rights, for as long as the run lives. On the way, objects that the play creates get the primary as their
owner, the kinds of dependents are reported so that they get watched, and what the play wrote is noted so that the
operator does not wake itself. Neighbour: ``rolecall.kube.client`` provides the connection to the API server.
"""

from rolecall.jobs.proxy.credentials import Credentials
from rolecall.jobs.proxy.ownership import Ownership
from rolecall.jobs.proxy.runs import ProxyRun
from rolecall.jobs.proxy.seen import Seen
from rolecall.jobs.proxy.server import Proxy

__all__ = ["Credentials", "Ownership", "Proxy", "ProxyRun", "Seen"]
