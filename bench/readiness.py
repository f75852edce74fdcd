"""How long ``rolecall run`` takes from the start of its process until its workers start.

The subject is the program as users run it: the repository's own watches.yaml, the service account of ``deploy/rbac``,
all definitions installed. Its workers start when all its informers know what is there. Python's compiled files are
there after the first start, as in an image.
"""

import os

from bench.contenders import WARM
from bench.operator_process import RUN, running
from bench.report import Measure
from bench.stage import PROJECT, Stage, progress

STARTS, GOAL_SECONDS = 5, 3.0


async def measure(stage: Stage) -> list[Measure]:
    """Start the operator five times, one after the other."""
    directory = stage.subdirectory("readiness")
    for part in ("watches.yaml", "roles"):
        (directory / part).symlink_to(PROJECT / part)
    times = []
    for number in range(STARTS):
        with running(RUN, directory, {**os.environ, "KUBECONFIG": str(stage.account)}) as operator:
            times.append(await operator.ready())
        progress(f"rolecall run, start {number + 1} of {STARTS}: ready after {times[-1]:.2f} s")
    what = "`rolecall run` ready with the repository's four kinds"
    return [Measure(what, "s", {WARM: times}, (GOAL_SECONDS,), f"median of {STARTS}")]
