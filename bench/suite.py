"""The whole benchmark in its order: control plane, subjects, report.

The subjects share one control plane but nothing else: each has a namespace and a folder of its own, and no operator
runs while another is measured. Another contender (a peer's operator, the same work by other means) is one more
coroutine in the list that ``_measure_all`` goes through. Neighbours: ``readiness``, ``population`` and ``plays``
measure, ``report`` prints.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import plays, population, readiness
from bench.machine import describe_machine, load_average
from bench.report import Row, markdown
from bench.stage import PROJECT, Stage, progress, until
from bench.widgets import DEFINITION

from rolecall.controlplane import ControlPlane, ControlPlaneError
from rolecall.demo.manifests import Applier, read_manifests
from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK

POPULATIONS, QUICK_POPULATIONS = (1_000, 10_000), (1_000,)
INTERRUPTED = 130
_DEFINITIONS = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
_SERVED_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the report; return 1 when something could not be measured, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="bench/run.py", description="Measures rolecall on its own control plane.")
    parser.add_argument("--quick", action="store_true", help="1,000 objects only: two minutes instead of ten")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being ended shall stop the control plane too
    try:
        report = asyncio.run(_run(QUICK_POPULATIONS if options.quick else POPULATIONS))
    except (ControlPlaneError, TimeoutError, RuntimeError) as error:
        progress(f"The benchmark could not be finished: {error}")
        return 1
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return INTERRUPTED
    sys.stdout.write(report)
    return 0


async def _run(populations: tuple[int, ...]) -> str:
    before = load_average()
    progress(f"Load of the machine at the start: {before}")
    with tempfile.TemporaryDirectory(prefix="rolecall-bench-") as folder:
        async with _stage(Path(folder)) as stage:
            rows = await _measure_all(stage, populations)
            machine = describe_machine(stage.kubeconfig)
    return markdown(rows, {**machine, "Load at start and end": f"{before}; {load_average()}"})


@asynccontextmanager
async def _stage(folder: Path) -> AsyncIterator[Stage]:
    control_plane = ControlPlane("bench", state_directory=folder / "control-planes", report=progress)
    await asyncio.to_thread(control_plane.start)
    try:
        await asyncio.to_thread(_define, control_plane.kubeconfig)
        account = control_plane.service_account_kubeconfig("rolecall-system", "rolecall")
        async with await Client.connect(str(control_plane.kubeconfig)) as client:
            await until(lambda: _are_served(client), _SERVED_SECONDS, "the API server lists every kind")
            yield Stage(folder, client, control_plane.kubeconfig, account)
    finally:
        await asyncio.to_thread(control_plane.stop)


def _define(kubeconfig: Path) -> None:
    applier = Applier(kubeconfig)
    for part in ("deploy/crds", "deploy/rbac", "deploy/rbac/podcount.yaml"):
        applier.apply(read_manifests(PROJECT / part))
    applier.apply([DEFINITION])


async def _are_served(client: Client) -> bool:
    """Tell whether all our kinds can be listed: the API server needs a moment after their definition."""
    try:
        for gvk in await _kinds(client):
            async for _ in client.list_pages(gvk):
                break
    except KubeError:
        return False
    return True


async def _kinds(client: Client) -> list[GVK]:
    definitions = [item async for page, _ in client.list_pages(_DEFINITIONS) for item in page]
    return [
        GVK(spec["group"], version["name"], spec["names"]["kind"])
        for spec in (item["spec"] for item in definitions)
        for version in spec["versions"]
    ]


async def _measure_all(stage: Stage, populations: tuple[int, ...]) -> list[Row]:
    rows = await readiness.measure(stage)
    rows += await population.measure(stage, populations)
    rows += await plays.measure(stage)
    return rows
