"""How a run is ended: its grace period, the revocation of its credentials, and what is killed when.

The order is always the same. The credentials are revoked, so that nothing is written any more. The process of the run
gets SIGTERM, passes it on to everything below itself, and kills what is left after the grace period. If the process
does not end either, it is killed. At last every process that carries the run's mark is killed.
"""

import asyncio
from contextlib import suppress

from rolecall.runner.config.settings import Settings
from rolecall.runner.runs.run_processes import kill_run_processes
from rolecall.runner.runs.runner import RunProcess, RunSpec
from rolecall.system.blocking_work import in_thread
from rolecall.system.logs import get_logger
from rolecall.system.process_tree import KILL_LIMIT_SECONDS

logger = get_logger("runner")

GRACE_SECONDS = 5.0
"""The time between SIGTERM and SIGKILL."""

_GRACE_SHARE = 0.2
_REVOKE_LIMIT_SECONDS = 5.0
_KILL_AFTER_SECONDS = 20.0
"""How long after the grace period the process may take to kill what is left, before it is killed itself."""


def grace_seconds(settings: Settings) -> float:
    """Return the grace period of runs.

    With leader election it is a share of the time between the renewal deadline and the end of the Lease, so that runs
    have ended before another replica may start.
    """
    if not settings.leader_elect:
        return GRACE_SECONDS
    window = settings.lease_duration_seconds - settings.renew_deadline_seconds
    return min(GRACE_SECONDS, max(0.0, window) * _GRACE_SHARE)


async def stop_process(spec: RunSpec, process: RunProcess) -> None:
    """Terminate the process of a run, kill it if that does not help, and kill all that is left of the run."""
    await revoke(spec)
    with suppress(ProcessLookupError):
        process.terminate()
    waiting = asyncio.create_task(process.wait())
    await asyncio.wait({waiting}, timeout=spec.grace_seconds + _KILL_AFTER_SECONDS)
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({waiting}, timeout=KILL_LIMIT_SECONDS)
    waiting.cancel()
    await kill_rest(spec)


async def kill_rest(spec: RunSpec) -> None:
    """Kill every process that carries the mark of the run; one that hangs in the kernel is left to itself."""
    if survivors := await in_thread(lambda: kill_run_processes(spec.ident)):
        logger.error("Processes of the run could not be killed and are left to themselves", pids=survivors)


async def revoke(spec: RunSpec) -> None:
    """Revoke the run's credentials; its processes are ended even if that fails."""
    try:
        async with asyncio.timeout(_REVOKE_LIMIT_SECONDS):
            if spec.revoke is not None:
                await spec.revoke()
    except Exception:
        logger.exception("Could not revoke the credentials of a run")
