"""The first object of an operator that has a tenth of a CPU, as in a pod with ``limits.cpu: 100m``.

The kernel's quota of a control group limits the whole process tree, as it limits a pod. This needs root, and a
hierarchy of control groups where groups can be made, of version 1 or 2. Contenders run one after the other, so that
none waits for another.
"""

import asyncio
import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from bench.contenders import KOPF, WARM, Contender, Ring, create_satisfied, ring
from bench.report import Collection, Measure
from bench.stage import Stage, progress
from bench.subjects import PLAIN

from rolecall.kube.references import ObjectKey

_SHARE, _PERIOD_MICROSECONDS = 0.1, 100_000
_GROUPS = Path("/sys/fs/cgroup")
_WITHIN_SECONDS, _LOOK_SECONDS = 900.0, 0.2
_SERVER, _READY = "rolecall.runner.warm.server", "The fork server is ready"


async def measure_starved(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """From the start of an operator with a tenth of a CPU until its first object is done, and its fork server ready."""
    first, second, ready, starts, used = (Collection() for _ in range(5))
    for number in range(stage.effort.starts):
        for each in (each for each in chosen if each.name != KOPF):
            namespace = await stage.namespace(f"starved-{number}-{each.name}")
            key = ObjectKey(namespace, "first")
            created = await create_satisfied(stage, PLAIN, key)
            with _control_group(f"rolecall-bench-{os.getpid()}-{number}-{each.name}") as group:
                async with ring(stage, _within(each, group), namespace) as alone:
                    servers: set[int] = set()
                    counting = asyncio.create_task(_count_servers(alone, servers))
                    done = await alone.seconds_from_start(PLAIN, created, _WITHIN_SECONDS)
                    first.add(each.name, done)
                    used.add(each.name, alone.operator.cpu_seconds)
                    if each.name == WARM:
                        ready.add(WARM, await alone.operator.seconds_to(_READY, _WITHIN_SECONDS))
                    second.add(each.name, await alone.change(PLAIN, [key]))
                    starts.add(each.name, len(servers))
                    counting.cancel()
                    _set_quota(group, None)  # its stop isn't measured
            await stage.client.delete(PLAIN.gvk, key)
            progress(
                f"{each.name}: first object done after {done:.1f} s, then {second.samples[each.name][-1]:.1f}"
                f" s; {used.samples[each.name][-1]:.1f} CPU s; {len(servers)} starts of a fork server"
            )
    return [
        Measure("a tenth of a CPU: start of the operator, until its first object is done", "s", first.samples),
        Measure("… CPU time until then, whole tree", "CPU s", used.samples),
        Measure("… start of the operator, until its fork server is ready", "s", ready.samples),
        Measure("… number of starts of a fork server, until the second change is done", "starts", starts.samples),
        Measure("… the second change, from trigger to status written", "s", second.samples),
    ]


@contextmanager
def _control_group(name: str) -> Iterator[Path]:
    """Yield the directory of a new control group with a tenth of a CPU. Raises RuntimeError if there can't be one."""
    parent = next((each for each in (_GROUPS / "cpu", _GROUPS) if (each / "cgroup.procs").exists()), _GROUPS)
    group = parent / name
    try:
        group.mkdir()
        _set_quota(group, _SHARE)
    except OSError as error:
        raise RuntimeError(f"no control group with a CPU quota can be made in {parent}: {error}") from error
    try:
        yield group
    finally:
        group.rmdir()


def _set_quota(group: Path, share: float | None) -> None:
    """Limit a control group to a share of one CPU; None removes the limit."""
    quota = None if share is None else int(share * _PERIOD_MICROSECONDS)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota or 'max'} {_PERIOD_MICROSECONDS}")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(quota or -1))


def _within(contender: Contender, group: Path) -> Contender:
    """Return a contender that enters the control group before it starts; its process stays the same."""
    enter = f'echo $$ > {group / "cgroup.procs"} && exec "$@"'
    return dataclasses.replace(contender, command=("sh", "-c", enter, "sh", *contender.command))


async def _count_servers(alone: Ring, found: set[int]) -> None:
    """Collect the process ids of the operator's fork servers, until cancelled."""
    operator = psutil.Process(alone.operator.process.pid)
    while True:
        with suppress(psutil.Error):
            for process in operator.children():
                with suppress(psutil.Error):
                    if _SERVER in process.cmdline():
                        found.add(process.pid)
        await asyncio.sleep(_LOOK_SECONDS)
