"""No forked process uses the connections to the API server that its parent has open.

kubernetes.core keeps its clients for as long as a process lives, with open connections, and a lookup leaves some in the
process of the play or of a worker. A module that is forked there inherits the client but not the descriptors, so that
its first request fails unless urllib3 repeats it, which it does for reads alone. Workers would share one connection.

This relies on no private function: every client has its connections in a ``PoolManager`` of urllib3.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any

import urllib3


def install() -> None:
    """Close inherited connections in each process that is forked from now on; clients open new ones."""
    managers: weakref.WeakSet[urllib3.PoolManager] = weakref.WeakSet()
    make: Callable[..., None] = urllib3.PoolManager.__init__

    def init(manager: urllib3.PoolManager, *args: Any, **options: Any) -> None:
        make(manager, *args, **options)
        managers.add(manager)

    def close_connections() -> None:
        """Close them in this process; another process that has them open keeps them."""
        for manager in list(managers):
            manager.clear()

    urllib3.PoolManager.__init__ = init  # type: ignore[assignment,method-assign]
    os.register_at_fork(after_in_child=close_connections)
