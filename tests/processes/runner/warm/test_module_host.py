"""A process that runs module after module: each finds what it would find in a process of its own."""

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from textwrap import dedent

import ansible.module_utils.basic  # noqa: F401 - as in the fork server, which has imported it
import pytest

from rolecall.runner.warm.module_host import GROWTH_LIMIT_BYTES, Ended, ModuleHost

PROBE = """
    import gc, json, locale, os, resource, signal, socket, sys, threading, warnings
    from ansible.module_utils import basic
    from ansible.module_utils.common import warnings as told
    print(json.dumps([
        os.getcwd(), dict(os.environ), sys.argv, os.umask(0o22), sys.path, list(map(repr, sys.meta_path)),
        len(sys.path_hooks), list(map(repr, warnings.filters)), locale.setlocale(locale.LC_ALL),
        [repr(signal.getsignal(each)) for each in signal.valid_signals()], threading.active_count(),
        [resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        socket.getdefaulttimeout(), sys.getrecursionlimit(), os.getpriority(os.PRIO_PROCESS, 0), gc.isenabled(),
        sorted(os.listdir("/proc/self/fd")), signal.getitimer(signal.ITIMER_REAL), sys.stdin.read(),
        sorted(name for name in sys.modules if name.startswith("ansible")), repr(sys.excepthook),
        len(basic._ANSIBLE_ARGS or b""), dict(told._global_warnings), hasattr(basic, "added"), basic.FILE_ATTRIBUTES,
    ]))
"""
"""Prints what a module sees of its process."""


def run(text: str) -> None:
    """Run the source of a module."""
    os.umask(0o22)
    os.chdir("/")
    exec(dedent(text), {"__name__": "__main__"})  # noqa: S102 - what the tests are about


@contextmanager
def hosting() -> Iterator[ModuleHost]:
    """Start a host, and end it at the end."""
    host = ModuleHost.start(run, lambda: None, (), None, own_session=True)
    try:
        yield host
    finally:
        if Path(f"/proc/{host.pid}/stat").exists():
            host.end()


def code_of(ended: Ended) -> int:
    """Return the exit code of a module, also of one whose process has died."""
    return os.waitstatus_to_exitcode(ended.status) if ended.code is None else ended.code


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        ("print('out')", 0, "out\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('words')", 1, "", "words\n"),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero\n"),
        ("import os; os.write(1, b'a'); os.write(2, b'b')", 0, "a", "b"),
        ("import subprocess; subprocess.run(['sh', '-c', 'echo a; echo b >&2'])", 0, "a\n", "b\n"),
        ("import sys; print('x' * 5_000_000)", 0, "x" * 5_000_000 + "\n", ""),
        ("import sys; sys.stdout = None; print('a')", 0, "", ""),
        ("import sys; sys.stdout.close()", 0, "", ""),
        ("import atexit; atexit.register(print, 'at exit')", 0, "at exit\n", ""),
        ("import threading as t; t.Timer(0.2, print, ['late']).start()", 0, "late\n", ""),
        ("import sys, threading as t; t.Thread(target=lambda: (print('a'), sys.exit(4))).start()", 0, "a\n", ""),
        ("import concurrent.futures as c; c.x = c.ThreadPoolExecutor(); c.x.submit(print, 'late')", 0, "late\n", ""),
        ("import os; print('a', flush=True); os._exit(7)", 7, "a\n", ""),
        ("import os, signal; print('a', flush=True); os.kill(os.getpid(), signal.SIGKILL)", -9, "a\n", ""),
        ("import os; os.abort()", -signal.SIGABRT, "", ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt\n"),
    ],
)  # fmt: skip
def test_module_ends_as_in_a_process_of_its_own(text: str, code: int, out: str, err: str) -> None:
    """Also as the second one, after one that printed more."""
    for before in ("", "print('z' * 100)"):
        with hosting() as host:
            if before:
                assert host.run(before).reason == ""
            ended = host.run(text)
        assert (code_of(ended), ended.out.decode()) == (code, out)
        assert ended.err.decode().endswith(err)


CHANGES = {
    "the directory": "import os; os.chdir('/tmp')",
    "the umask": "import os; os.umask(0)",
    "the path of imports": "import sys; sys.path.insert(0, '/nowhere'); sys.meta_path.clear(); sys.path_hooks.clear()",
    "filters of warnings": "import warnings; warnings.simplefilter('error')",
    "the limit of files": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (99, resource.getrlimit(7)[1]))",
    "the locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "a module that is imported": "import ansible.module_utils.urls",
    "a variable of a module": "from ansible.module_utils import basic; basic._ANSIBLE_ARGS = b'{}'",
    "a new variable": "from ansible.module_utils import basic; basic.added = 1",
    "a list": "from ansible.module_utils.common import warnings as w; w._global_warnings['x'] = None",
    "a mapping in a mapping": "from ansible.module_utils import basic; basic.FILE_ATTRIBUTES['x'] = 1",
}
"""What is put back."""

LEFTOVERS = {
    "threads": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "child processes": "import subprocess; subprocess.Popen(['sleep', '600'])",
    "descriptors": "import os; os.open('/', os.O_RDONLY)",
    "descriptors, fewer": "import os; os.close(1)",
    "signals": "import signal; signal.signal(signal.SIGTERM, lambda *_: None)",
    "timers": "import signal; signal.setitimer(signal.ITIMER_REAL, 1000)",
    "limits": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "session": "import os; os.nice(1)",
    "settings of Python": "import sys, socket; sys.setrecursionlimit(5000); socket.setdefaulttimeout(3)",
    "it has grown": f"import json; json.kept = b'x' * {GROWTH_LIMIT_BYTES + (16 << 20)}",
}
"""What ends the host, by the text that says so."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_module_changes_is_put_back(change: str) -> None:
    with hosting() as host:
        first = host.run(PROBE)
        assert host.run(CHANGES[change]).reason == ""
        second = host.run(PROBE)
    assert (second.code, json.loads(second.out)) == (0, json.loads(first.out))


@pytest.mark.parametrize("left", LEFTOVERS)
def test_what_cannot_be_put_back_ends_the_host_after_the_result(left: str) -> None:
    with hosting() as host:
        ended = host.run(f"print('done', flush=True)\n{LEFTOVERS[left]}")
        assert (ended.code, ended.out) == (0, b"done\n")
        assert left.partition(",")[0] in ended.reason
        assert not Path(f"/proc/{host.pid}/stat").exists()


def test_arguments_and_results_have_any_size() -> None:
    with hosting() as host:
        text = "x" * 3_000_000
        assert host.run(f"print(len('{text}'))").out == b"3000000\n"
        assert host.run("print(1)").out == b"1\n"


def test_many_modules_leave_nothing() -> None:
    """Neither memory, nor descriptors, nor threads, although each makes garbage in cycles."""
    text = (
        "each = []; each.append(each); each.extend(range(10_000)); import os; print(len(os.listdir('/proc/self/fd')))"
    )
    with hosting() as host:
        found = {host.run(text) for _ in range(2_000)}
    assert {(*ended[:2], ended.reason) for ended in found} == {(0, 0, "")}
    assert len(found) == 1


def test_module_that_nobody_waits_for_is_killed() -> None:
    with hosting() as host:
        timer = threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGUSR1))

        def interrupt(*_: object) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGUSR1, interrupt)
        timer.start()
        try:
            with pytest.raises(TimeoutError):
                host.run("import time; time.sleep(600)")
        finally:
            signal.signal(signal.SIGUSR1, before)
        host.kill()
        assert not Path(f"/proc/{host.pid}/stat").exists()


def test_host_ends_with_its_parent() -> None:
    code = dedent(
        """
        import os, sys
        from rolecall.runner.warm.module_host import ModuleHost
        host = ModuleHost.start(print, lambda: None, (), None, own_session=True)
        host.run("a")
        print(host.pid, flush=True)
        sys.stdin.read()
        os._exit(0)
        """
    )
    with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as parent:
        assert parent.stdout is not None
        host = os.pidfd_open(int(parent.stdout.readline()))
        parent.communicate()
    assert select.select([host], [], [], 60)[0] == [host]
    os.close(host)
