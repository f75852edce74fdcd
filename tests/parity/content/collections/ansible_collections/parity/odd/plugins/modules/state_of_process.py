"""Reports what a module finds in its process, and spoils it for those that come after."""

import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path

from ansible.module_utils import basic

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGCHLD", "SIGALRM", "SIGUSR1")


def descriptors() -> list[str]:
    """Return the open files, except for the standard streams."""
    paths = Path("/proc/self/fd").iterdir()
    return sorted(str(path.readlink()) for path in paths if int(path.name) > 2 and path.exists())


def limits() -> list[int]:
    return [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]


def umask() -> str:
    mask = os.umask(0o22)
    os.umask(mask)
    return f"{mask:o}"


def spoiled() -> list[int]:
    return [getattr(module, "spoiled", 0) for module in (json, basic, sys)]


def seen() -> dict[str, object]:
    return {
        "umask": umask(),
        "in_a_directory": Path.cwd().is_dir(),
        "signals": {name: str(signal.getsignal(getattr(signal, name))) for name in SIGNALS},
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "terminals": [os.isatty(number) for number in (0, 1, 2)],
        "input": sys.stdin.read(10),
        "encodings": [
            sys.stdout.encoding,
            sys.getfilesystemencoding(),
            locale.getpreferredencoding(do_setlocale=False),
        ],
        "locale": list(locale.getlocale()),
        "limits": limits(),
        "recursion": sys.getrecursionlimit(),
        "threads": threading.active_count(),
        "niceness": os.nice(0),
        "name": __name__,
        "timeout": socket.getdefaulttimeout(),
        "logging": [len(logging.getLogger().handlers), logging.getLogger().level],
        "traces": [sys.gettrace() is None, sys.getprofile() is None],
        "spoiled": spoiled(),
        "no_color": os.environ.get("NO_COLOR"),
        "main_is_here": vars(sys.modules["__main__"]).get("seen") is seen,
        "arguments": len(sys.argv),
        "descriptors": descriptors(),
    }


def spoil() -> None:
    os.umask(0o77)
    os.chdir("/")
    os.environ["NO_COLOR"] = "spoiled"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    socket.setdefaulttimeout(1)
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("error")
    random.seed(1)
    sys.setrecursionlimit(500)
    for module in (json, basic, sys):
        vars(module)["spoiled"] = vars(module).get("spoiled", 0) + 1


def main() -> None:
    module = basic.AnsibleModule({})
    state = seen()
    spoil()
    module.exit_json(state=state)


if __name__ == "__main__":
    main()
