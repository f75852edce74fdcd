"""No forked process uses the connections to the API server that its parent has open.

kubernetes.core keeps its clients for as long as a process lives, with open connections, and a lookup leaves some in the
process of the play or of a worker. A module that is forked there inherits the client but not the descriptors, so that
its first request fails unless urllib3 repeats it, which it does for reads alone. Workers would share one connection.
"""

import os
import sys

_CLIENTS = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.client"


def install() -> None:
    """Close inherited connections in each process that is forked from now on; clients open new ones."""
    os.register_at_fork(after_in_child=close_connections)


def close_connections() -> None:
    """Close the connections of all clients in this process; another process that has them open keeps them."""
    for client in getattr(sys.modules.get(_CLIENTS), "_pool", {}).values():
        client.client.rest_client.pool_manager.clear()
