"""What one unchanged warm run costs: page faults, processes, CPU time, and memory, for each interpreter.

``python bench/run_costs.py PYTHON...`` starts a control plane and takes interpreters, each with rolecall installed, for
example one for each version of Python. In each round, all of them run both subjects of the benchmark in turn.

A page fault here is a minor one: a process writes to a page of memory that it shares with the process that it was
forked from, or uses a new one. How long one takes depends on the machine, so it is measured too, in the same run. The
counts don't: quote them, and the faults' share of the CPU time for the machine.
"""

import argparse
import asyncio
import contextlib
import mmap
import os
import platform
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script finds only modules of its own directory

from bench.interpreters import WarmRuns, answer, serve, worker
from bench.stage import PROJECT, Kubectl
from bench.subjects import CONTENT, PODS_EACH, SUBJECTS, Subject

from rolecall.kube.client import Client
from rolecall.kube.references import ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.variables import extra_vars
from rolecall.runner.runs.workspace import Workspace
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import read_manifests

ROLES = {"podscaler": PROJECT / "roles" / "podscaler", "plain": CONTENT / "roles" / "widget"}
_FIRST_RUNS = 6
"""The first runs report which functions they use; they don't count."""

_PAGES = 16384
_Costs = dict[str, float]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter with rolecall and ansible-core")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="run-costs-") as directory, contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane("run-costs", state_directory=Path(directory) / "control-planes"))
        kubectl = Kubectl(plane)
        kubectl.apply(
            *(each for part in (PROJECT / "deploy/crds", CONTENT / "widgets.yaml") for each in read_manifests(part))
        )
        kubectl.wait_for_definitions()
        workers = []
        for number, python in enumerate(options.pythons):
            kubectl.apply(*(obj for subject in SUBJECTS for obj in _objects(subject, number)))
            started = worker(python, __file__, [directory, str(number)], str(plane.kubeconfig))
            workers.append(stack.enter_context(started))
        names = [str(answer(each, "version")) for each in workers]
        found: dict[tuple[str, str], list[_Costs]] = defaultdict(list)
        faults = []
        for number in range(options.rounds):
            faults.append(_microseconds_per_fault())
            for name, each in zip(names, workers, strict=True):
                for role in ROLES:
                    found[role, name].append(answer(each, role))
            sys.stderr.write(f"Round {number + 1} of {options.rounds}\n")
    sys.stdout.write(_table(found))
    sys.stdout.write(f"\nA page fault takes {statistics.median(faults):.2f} µs here.\n")


def _objects(subject: Subject, number: int) -> Iterator[dict[str, object]]:
    """Yield an object of a subject with the pods that it wants, so that nothing is to be done."""
    key = _key(subject.title, number)
    yield from subject.pods(key, PODS_EACH)
    obj = subject.make(key, PODS_EACH)
    del obj["spec"]["revision"]
    yield obj


def _key(role: str, number: int) -> ObjectKey:
    return ObjectKey("default", f"costs-{role}-{number}")


def _table(found: dict[tuple[str, str], list[_Costs]]) -> str:
    names = list(next(iter(found.values()))[0])
    rows = [f"| medians of one unchanged run | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for (role, name), costs in found.items():
        medians = (statistics.median(each[column] for each in costs) for column in names)
        rows.append(f"| {role}, {name} | {' | '.join(f'{median:,.4g}' for median in medians)} |")
    return "\n".join(rows) + "\n"


@dataclass(frozen=True, slots=True)
class _Respondent:
    """Measures the runs of one interpreter for the objects with this number."""

    directory: Path
    number: int

    async def respond(self, runs: WarmRuns, question: str) -> object:
        """Return the versions of this interpreter, or what an unchanged run of a role costs."""
        if question == "version":
            for _ in range(_FIRST_RUNS):
                for role in ROLES:
                    await self._run(runs, role)
            return f"Python {platform.python_version()}, ansible-core {version('ansible-core')}"
        before, processes, started = runs.costs(), _processes(), time.monotonic()
        if await self._run(runs, question):
            sys.exit(f"{question}: the run changed something")
        seconds, processes, after = time.monotonic() - started, _processes() - processes, runs.costs()
        return {
            "page faults": after.faults - before.faults,
            "processes and threads": processes,
            "user ms": 1000 * (after.user_seconds - before.user_seconds),
            "system ms": 1000 * (after.system_seconds - before.system_seconds),
            "ms": 1000 * seconds,
            "private MiB": await self._private_bytes(runs, question) / (1 << 20),
        }

    async def _run(self, runs: WarmRuns, role: str) -> int:
        """Run once; return how many tasks changed something."""
        subject = next(each for each in SUBJECTS if each.title == role)
        key, watch = _key(role, self.number), Watch(subject.gvk, RoleContent(ROLES[role]))
        async with await Client.connect(os.environ["KUBECONFIG"]) as client:
            variables = extra_vars(await client.get(subject.gvk, key), watch, mark_unsafe=True)
        workspace = Workspace(self.directory / f"runs-{self.number}", subject.gvk, key)
        return (await runs.run(workspace, ROLES[role], variables)).counts.changed

    async def _private_bytes(self, runs: WarmRuns, role: str) -> int:
        """Return the most private memory of all processes in another run: reading it slows a run down."""
        ended, peaks = threading.Event(), [0]
        sampling = threading.Thread(target=_sample, args=(runs, ended, peaks))
        sampling.start()
        await self._run(runs, role)
        ended.set()
        await asyncio.to_thread(sampling.join)
        return max(peaks)


def _processes() -> int:
    """Return how many processes and threads the machine has started."""
    text = Path("/proc/stat").read_text()
    return int(text.partition("\nprocesses ")[2].split(maxsplit=1)[0])


def _sample(runs: WarmRuns, ended: threading.Event, peaks: list[int]) -> None:
    """Add the private memory of all processes below the fork server, again and again."""
    server = psutil.Process(runs.server_id)
    while not ended.is_set():
        total = 0
        for process in server.children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                total += 1024 * int(text.partition("Private_Dirty:")[2].split(maxsplit=1)[0])
        peaks.append(total)


def _microseconds_per_fault() -> float:
    """Return what it costs a forked process to write to a page that it shares with its parent."""
    size = _PAGES * mmap.PAGESIZE
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:: mmap.PAGESIZE] = b"1" * _PAGES
    reading, writing = os.pipe()
    if not os.fork():
        before = resource.getrusage(resource.RUSAGE_SELF)
        memory[:: mmap.PAGESIZE] = b"2" * _PAGES
        after = resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        os.write(writing, f"{1e6 * used / max(1, after.ru_minflt - before.ru_minflt)}".encode())
        os._exit(0)
    os.wait()
    return float(os.read(reading, 40))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1:2] == ["--worker"]:
            respondent = _Respondent(Path(sys.argv[2]), int(sys.argv[3]))
            asyncio.run(serve(sorted(ROLES.values()), respondent.respond))
        else:
            main()
