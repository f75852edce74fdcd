"""Profiles a process of a warm run with many tasks of one kind: ``python bench/task_profile.py --task skipped``.

It prints two tables by function: own CPU time, and that with what it calls. The times are those under ``cProfile``,
which makes calls more expensive than they are: compare shares and counts, and measure a change with
``core_versions.py``. For another version of ansible-core, use an interpreter with that one.
"""

import argparse
import asyncio
import os
import pstats
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script finds only modules of its own directory

from bench.core_versions import TASKS, write_role
from bench.interpreters import WarmRuns, set_run_environment

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.starter import ForkserverStarter

_RUNS = 8
"""The first five runs also report which functions they use; the last one counts."""

_KEY = ObjectKey("default", "task")
_DEPTHS = {"run": 1, "playbook": 2}
"""How many forks are between the server and a process."""

_HOOK = """
import cProfile, os, sys, threading, time
forks = 0
def profiled():
    profile, leave, work = cProfile.Profile(time.thread_time), os._exit, threading.Thread._bootstrap_inner
    def leave_with_profile(code):
        profile.disable()
        profile.dump_stats({path!r})
        leave(code)
    def work_with_profile(thread):
        if thread.name != "ansible-runner":
            return work(thread)
        profile.enable()
        work(thread)
        profile.disable()
    os._exit = leave_with_profile
    if {depth} == 1:  # the run drives ansible-playbook in a thread
        threading.Thread._bootstrap_inner = work_with_profile
    else:
        profile.enable()
def after_fork():
    global forks
    forks += 1
    if forks == {depth}:
        profiled()
    else:
        sys.setprofile(None)  # Python 3.12 and newer forget it by themselves
os.register_at_fork(after_in_child=after_fork)
"""


def main() -> None:
    """Run a role with copies of the task, and print the profile of its last run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="skipped", help="the kind of task (default: %(default)s)")
    parser.add_argument(
        "--process", choices=_DEPTHS, default="playbook", help="ansible-playbook, or the run that drives it"
    )
    parser.add_argument("--copies", type=int, default=50, help="the number of tasks (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=50, help="of each table (default: %(default)s)")
    parser.add_argument("--save", type=Path, help="a file for the profile, to be read with pstats")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="task-profile-") as directory:
        path = Path(directory, "profile")
        role = write_role(Path(directory), options.task, options.copies)
        Path(directory, "sitecustomize.py").write_text(_HOOK.format(path=str(path), depth=_DEPTHS[options.process]))
        set_run_environment(os.environ)
        os.environ["PYTHONPATH"] = os.pathsep.join([directory, os.environ["PYTHONPATH"]])
        asyncio.run(_run(role, Workspace(Path(directory, "runs"), GVK("bench.rolecall.dev", "v1", "Task"), _KEY)))
        if options.save:
            options.save.write_bytes(path.read_bytes())
        statistics = pstats.Stats(str(path))
    for order in ("tottime", "cumulative"):
        statistics.sort_stats(order).print_stats(options.lines)


async def _run(role: Path, workspace: Workspace) -> None:
    async with ForkserverStarter([role]) as starter:
        if starter.server:
            await starter.server.ready
        runs = WarmRuns(starter, ProcessRunner(starter))
        for _ in range(_RUNS):
            await runs.run(workspace, role, {})


if __name__ == "__main__":
    main()
