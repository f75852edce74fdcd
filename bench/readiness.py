"""How long ``rolecall run`` takes from the start of its process until its workers start.

The subject is the program as users run it: the repository's own watches.yaml, the service account of ``deploy/rbac``,
all definitions installed. Its workers start when all its informers know what is there. Python's compiled files are
there after the first start, as in an image.
"""

import sys

from bench.operator_process import running
from bench.report import Row, Samples
from bench.stage import PROJECT, REPEATS, Stage, progress

GOAL_SECONDS = 3.0
RUN = (sys.executable, "-m", "rolecall", "run", "--zap-encoder", "json")


async def measure(stage: Stage) -> list[Row]:
    """Start the operator five times, one after the other."""
    directory = stage.subdirectory("readiness")
    for part in ("watches.yaml", "roles"):
        (directory / part).symlink_to(PROJECT / part)
    times = []
    for number in range(REPEATS):
        async with running(RUN, directory, {"KUBECONFIG": str(stage.account)}) as operator:
            times.append(await operator.ready())
        progress(f"rolecall run, start {number + 1} of {REPEATS}: ready after {times[-1]:.2f} s")
    samples = Samples(times)
    remark = f"median of {REPEATS}, {samples.spread}"
    return [Row("`rolecall run` ready with the repository's four kinds", samples.median, "s", GOAL_SECONDS, remark)]
