"""The operator's side of the guard that kills it before its Lease expires, unless it has stopped by then.

The guard is the operator's parent process, so that it works in any state of the operator; see ``supervisor``. So no
two replicas work at the same time. If the guard itself is killed, the operator is killed too.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from rolecall.kube.errors import KubeError
from rolecall.runner.election import supervisor
from rolecall.runner.election.supervisor import HANDLED, MESSAGE
from rolecall.system.processes import become_subreaper, signal_on_parent_death


def end_at(messages: int, when: float) -> None:
    """Let the guard kill this process and its descendants at a time of ``CLOCK_BOOTTIME``, infinity for never.

    Raises KubeError if the guard doesn't read the message.
    """
    try:
        os.write(messages, MESSAGE.pack(when))
    except OSError as error:
        raise KubeError(f"the guard of the Lease, process {os.getppid()}, does not answer: {error}") from error


def start_guard() -> Callable[[float], None]:
    """Make this process the guard, and return ``end_at`` in a new child process, which becomes the operator.

    Call it early, before there are threads. The guard drops imported modules; the operator keeps them.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    become_subreaper()  # the guard, which keeps it, kills orphans too
    # A signal waits until the guard can pass it on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    guard = os.getpid()
    operator = os.fork()
    if operator:
        os.close(writing)
        _become_guard(operator, reading)
    os.close(reading)
    os.set_blocking(writing, False)
    os.setpgid(0, 0)  # a terminal signals a whole group: the operator must not get a signal twice
    signal_on_parent_death(guard, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return partial(end_at, writing)


def _become_guard(operator: int, messages: int) -> NoReturn:
    os.set_inheritable(messages, True)  # noqa: FBT003 - the signature of the standard library
    words = [sys.executable, "-I", "-S", supervisor.__file__, str(operator), str(messages)]
    try:
        os.execv(sys.executable, words)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"failed to start the guard of the Lease, {' '.join(words)}: {error}\n")
        os._exit(1)  # the operator ends with its parent
