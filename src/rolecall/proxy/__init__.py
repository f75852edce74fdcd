"""The API endpoint that a run talks to.

A play is given a URL on loopback and a secret of its own. Through it the play reaches the API server with the
operator's rights, for as long as the run lives. On the way, objects that the play creates get the primary as their
owner, the kinds of dependents are reported so that they get watched, and what the play wrote is noted so that the
operator does not wake itself.
"""

from rolecall.proxy.credentials import ProxyCredentials
from rolecall.proxy.reads.read_watermark import ReadWatermark
from rolecall.proxy.server import Proxy
from rolecall.proxy.sessions import SessionSpec
from rolecall.proxy.writes.ownership import Ownership

__all__ = ["Ownership", "Proxy", "ProxyCredentials", "ReadWatermark", "SessionSpec"]
