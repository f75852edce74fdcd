"""Compares warm runs of several versions of ansible-core: CPU time for each kind of task, and whole unchanged runs.

``python bench/core_versions.py --kubeconfig FILE PYTHON...`` takes one interpreter for each version, each with rolecall
installed, and the kubeconfig of a control plane where the samples are done (``rolecall demo --keep`` leaves one). The
first interpreter is what the others are compared with.

Each interpreter has a fork server. In each round, all of them run the same role in turn, so that other work on the
machine affects all alike. What counts is the CPU time of the fork server's children: the process of a run and all
processes below it. The cost of a task is the difference between a role with COPIES of it and a role with none.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script finds only modules of its own directory

from bench.interpreters import PROJECT, WarmRuns, answer, serve, worker

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.variables import extra_vars
from rolecall.runner.runs.workspace import Workspace
from rolecall.runner.warm.ansible_patches.patches import VARIABLE

COPIES = 10
RUNS = 3
"""How many runs are measured together: the kernel counts hundredths of a second."""
_NOTHING = "no tasks"
_CONFIG_MAP = "{api_version: v1, kind: ConfigMap, namespace: default, name: core-versions}"
TASKS = {
    "set_fact": "set_fact: {word: '{{ [1, 2] | length }}'}",
    "debug": "debug: {msg: 'a {{ ansible_version.full }}'}",
    "assert": "assert: {that: [ansible_version.full is defined], quiet: true}",
    "skipped": "debug: {msg: never}\n  when: ansible_version.full is undefined",
    "loop over nothing": "debug: {msg: '{{ item }}'}\n  loop: '{{ [] }}'",
    "loop of 3": "debug: {msg: '{{ item }}'}\n  loop: '{{ [1, 2, 3] }}'",
    "include_tasks": "include_tasks: more.yml",
    "lookup of a template file": "set_fact: {text: \"{{ lookup('template', 'text.j2') }}\"}",
    "lookup of a variable of the environment": "set_fact: {text: \"{{ lookup('env', 'HOME') }}\"}",
    "stat": "stat: {path: /}",
    "k8s_info": f"kubernetes.core.k8s_info: {_CONFIG_MAP}",
    "k8s, unchanged": f"kubernetes.core.k8s: {_CONFIG_MAP}",
}
SAMPLES = {
    "podscaler": ("scaling.example.com/v1", "PodScaler", "podscaler-sample/example-podscaler"),
    "hikawa": ("zundokokiyoshi.kaitoy.github.com/v1beta1", "Hikawa", "hikawa-sample/hikawa-sample"),
    "foo": ("samplecontroller.k8s.io/v1alpha1", "Foo", "foo-sample/foos.samplecontroller.k8s.io"),
    "podcount": ("apps/v1", "ReplicaSet", "replicaset-sample/example-replicaset"),
}


def main() -> None:
    """Measure and print a table, progress to standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter with rolecall and ansible-core")
    parser.add_argument("--kubeconfig", required=True, help="a control plane with the samples of this repository")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--only", action="append", help="only this kind of task, or sample (can be repeated)")
    options = parser.parse_args()
    chosen = options.only or [*TASKS, *SAMPLES]
    with tempfile.TemporaryDirectory(prefix="core-versions-") as directory, contextlib.ExitStack() as stack:
        for case in (_NOTHING, *TASKS):
            write_role(Path(directory), case, COPIES)
        started = [worker(python, __file__, [directory], options.kubeconfig) for python in options.pythons]
        workers = [stack.enter_context(each) for each in started]
        names = [str(answer(each, "version")) for each in workers]
        measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for turn in range(options.rounds + 1):  # the first one fills caches
            for case in [_NOTHING, *chosen]:
                for name, each in random.sample(list(zip(names, workers, strict=True)), len(workers)):
                    seconds = float(answer(each, case))
                    if turn:
                        measured[case][name].append(1000 * seconds)
            sys.stderr.write(f"Round {turn} of {options.rounds}\n")
    sys.stdout.write(_table(names, measured, chosen))


def write_role(directory: Path, case: str, copies: int) -> Path:
    """Write the role of a case, with this number of its tasks. Return its directory."""
    role = _role_of(directory, case)
    task = TASKS.get(case)
    for name in ("tasks", "templates"):
        (role / name).mkdir(parents=True)
    text = "".join(f"- name: Task {number}\n  {task}\n" for number in range(copies) if task)
    (role / "tasks" / "main.yml").write_text(f"---\n{text}")
    (role / "tasks" / "more.yml").write_text("---\n- debug: {msg: included}\n")
    (role / "templates" / "text.j2").write_text("{{ ansible_version.full }}\n")
    return role


def _role_of(directory: Path, case: str) -> Path:
    """Return the directory of the role with the tasks of a case."""
    return directory / "roles" / "".join(character if character.isalnum() else "_" for character in case)


def _table(names: list[str], measured: dict[str, dict[str, list[float]]], chosen: list[str]) -> str:
    """Return the medians in milliseconds, and the median of the ratios of each round to the first version."""
    rows = [f"| CPU ms | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for case in [_NOTHING, *chosen]:
        costs = {name: _costs(measured, case, name) for name in names}
        cells = []
        for name in names:
            ratio = statistics.median(own / first for own, first in zip(costs[name], costs[names[0]], strict=True))
            cells.append(f"{statistics.median(costs[name]):.1f}" + (f" ({ratio:.2f})" if name != names[0] else ""))
        kind = "a run with" if case == _NOTHING else "role" if case in SAMPLES else "task"
        rows.append(f"| {kind} {case} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _costs(measured: dict[str, dict[str, list[float]]], case: str, name: str) -> list[float]:
    if case not in TASKS:
        return measured[case][name]
    pairs = zip(measured[case][name], measured[_NOTHING][name], strict=True)
    return [max(own - base, 0.01) / COPIES for own, base in pairs]


async def _respond(directory: Path, runs: WarmRuns, question: str) -> object:
    """Return the version of this interpreter's ansible-core, or the CPU seconds of a run of a case."""
    if question == "version":
        return " with ".join(filter(None, (version("ansible-core"), os.environ.get(VARIABLE))))
    role = PROJECT / "roles" / question if question in SAMPLES else _role_of(directory, question)
    gvk, key, variables = GVK("bench.rolecall.dev", "v1", "Version"), ObjectKey("default", role.name), {}
    if question in SAMPLES:
        api_version, kind, name = SAMPLES[question]
        gvk, key = GVK.of_object({"apiVersion": api_version, "kind": kind}), ObjectKey(*name.split("/"))
        async with await Client.connect(os.environ["KUBECONFIG"]) as client:
            variables = extra_vars(await client.get(gvk, key), Watch(gvk, RoleContent(role)), mark_unsafe=True)
    workspace = Workspace(directory / "runs" / version("ansible-core"), gvk, key)
    used = 0.0
    for _ in range(RUNS):
        before = runs.costs()
        await runs.run(workspace, role, variables)
        after = runs.costs()
        used += after.user_seconds + after.system_seconds - before.user_seconds - before.system_seconds
    return used / RUNS


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1:2] == ["--worker"]:
            made = Path(sys.argv[2])
            # As an operator does it: the server prepares for the directory of each role, not for one with roles.
            roles = [*sorted((made / "roles").iterdir()), *(PROJECT / "roles" / name for name in SAMPLES)]
            asyncio.run(serve(roles, partial(_respond, made)))
        else:
            main()
