"""What CustomResourceDefinitions cost that no role uses: unchanged objects with none of them and with three hundred.

They are in the groups of the objects, because kubernetes.core keeps the groups that a role uses in its file, and each
module decodes them.
Two operators take turns, so that what else the machine does meets both: one whose runs are handed what the API server
serves, and one whose runs request it, as they did before. Each restarts when the definitions are there. A turn
changes several objects immediately, because CPU time is counted in hundredths of a second.
"""

import asyncio
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import WORKERS, Contender, rings
from bench.readiness import RUN
from bench.records import turns_of
from bench.report import Row, Samples
from bench.stage import Stage, progress, until
from bench.subjects import SUBJECTS
from bench.widgets import side_by_side

from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject

DEFINITIONS = 300
TURNS, QUICK_TURNS = 6, 3
GOAL_PERCENT = 5.0
ASKED, HANDED = "asked-for", "handed-over"
_SERVED_SECONDS = 120.0
_PREFIX = "Unused"
_DEFINITION = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_Samples = dict[str, list[float]]


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Measure both operators without further definitions, then with them; the definitions are removed at the end."""
    turns = QUICK_TURNS if is_quick else TURNS
    definitions = [_definition(number) for number in range(DEFINITIONS)]
    before, modules = await _measured(stage, 0, turns), await _modules(stage, 0)
    progress(f"Making {DEFINITIONS} definitions")
    try:
        await side_by_side(stage.client.create, definitions)
        await until(lambda: _are_served(stage), _SERVED_SECONDS, "the API server serves every definition")
        modules += await _modules(stage, DEFINITIONS)
        after = await _measured(stage, DEFINITIONS, turns)
    finally:
        progress(f"Removing {DEFINITIONS} definitions")
        keys = [ObjectKey.of_object(each) for each in definitions]
        await side_by_side(lambda key: stage.client.delete(_DEFINITION, key), keys)
    return modules + [
        row
        for number, subject in enumerate(SUBJECTS)
        for name in (ASKED, HANDED)
        for row in _rows(subject.title, name, before[number], after[number])
    ]


async def _modules(stage: Stage, count: int) -> list[Row]:
    """Return the cost of one module with this many more definitions."""
    rows = []
    for name, mode in ((ASKED, "asked"), (HANDED, "handed")):
        program = str(Path(__file__).with_name("module_discovery.py"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, program, str(stage.kubeconfig), mode, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        what = f"one module that needs two kinds, {count} more definitions, discovery {name.replace('-', ' ')}"
        rows.append(Row(f"{what}: CPU", float(printed), "ms"))
        progress(f"{what}: {rows[-1].value:.2f} CPU ms")
    return rows


async def _measured(stage: Stage, count: int, turns: int) -> list[tuple[_Samples, _Samples]]:
    """Return, for each subject, the CPU time of a reconcile and its time, of each turn of both operators."""
    flags = ("--zap-encoder", "json", "--max-concurrent-reconciles", str(WORKERS))
    asking = (sys.executable, str(Path(__file__).with_name("asking_operator.py")), "run", *flags)
    chosen = [Contender(HANDED, (*RUN, *flags[2:])), Contender(ASKED, asking)]
    async with rings(stage, f"with-{count}", chosen) as all_rings:
        found = [await turns_of(all_rings, subject, turns) for subject in SUBJECTS]
    for subject, (cpu, _) in zip(SUBJECTS, found, strict=True):
        medians = ", ".join(f"{name} {statistics.median(values):.3f}" for name, values in cpu.items())
        progress(f"{subject.title}, {count} more definitions, CPU seconds with discovery {medians}")
    return found


def _rows(title: str, name: str, before: tuple[_Samples, _Samples], after: tuple[_Samples, _Samples]) -> list[Row]:
    what = f"{title}, unchanged, discovery {name.replace('-', ' ')}"
    none, many = before[0][name], after[0][name]
    more = 100 * (statistics.median(many) / statistics.median(none) - 1)
    return [
        _row(f"{what}: CPU of a reconcile", none, "CPU s"),
        _row(f"{what}: CPU with {DEFINITIONS} more definitions", many, "CPU s"),
        Row(f"{what}: … more CPU with them", more, "%", GOAL_PERCENT if name == HANDED else None, "of the medians"),
        _row(f"{what}: from trigger to status written", before[1][name], "s"),
        _row(f"{what}: the same with {DEFINITIONS} more definitions", after[1][name], "s"),
    ]


def _row(what: str, values: Sequence[float], unit: str) -> Row:
    samples = Samples(values)
    return Row(what, samples.median, unit, remark=f"median of {len(values)}, {samples.spread}")


async def _are_served(stage: Stage) -> bool:
    try:
        served = await AggregatedDiscovery(stage.client).changed()
    except KubeError:
        return False
    groups = served.groups if served else {}
    found = [kind for versions in groups.values() for each in versions.values() for kind in each or ()]
    return len([each for each in found if each["kind"].startswith(_PREFIX)]) == DEFINITIONS


def _definition(number: int) -> RawObject:
    group, kind = SUBJECTS[number % len(SUBJECTS)].gvk.group, f"{_PREFIX}{number}"
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}
    return {
        "apiVersion": _DEFINITION.api_version,
        "kind": _DEFINITION.kind,
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
