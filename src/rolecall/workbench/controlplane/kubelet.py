"""The process of the kubelet endpoint: waits for the first connection before it imports and starts the server.

Most control planes never serve one, and an idle process takes 9 MiB in place of 48. So the control plane runs this file
by its path: importing it as a module would import the package too. The arguments are the API server's port and the file
descriptor of the listening socket; clients wait in the socket's queue in the meantime.
"""

import select
import socket
import sys


def main() -> None:
    """Serve on the inherited socket until the process is stopped."""
    api_server_port, descriptor = map(int, sys.argv[1:])
    with socket.socket(fileno=descriptor) as listener:
        select.select([listener], [], [])
        import asyncio  # noqa: PLC0415 - see above

        from rolecall.workbench.controlplane.kubelet_server import serve  # noqa: PLC0415 - see above

        asyncio.run(serve(listener, api_server_port))


if __name__ == "__main__":
    main()
