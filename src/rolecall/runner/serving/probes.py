"""The health probes: liveness and readiness.

``/healthz`` returns 200 while the event loop runs. ``/readyz`` returns 200 once every informer has synced, or knows
that it cannot sync for now; in a leader election, followers are ready like the leader. Each check has its own path, for
example ``/healthz/ping``, and ``?verbose`` lists all checks, and the kinds that cannot be listed for now.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

Check = Callable[[], bool]
Notes = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the informers are ready, and notes on those that cannot sync for now."""

    is_ready: Check
    notes: Notes = tuple


def probes_application(readiness: Readiness) -> web.Application:
    """Return the application that serves the probes."""
    application = web.Application()
    _add(application, "healthz", {"ping": lambda: True})
    _add(application, "readyz", {"readyz": lambda: True, "informers": readiness.is_ready}, readiness.notes)
    return application


def _add(application: web.Application, probe: str, checks: Mapping[str, Check], notes: Notes = tuple) -> None:
    async def answer(request: web.Request) -> web.Response:
        name = request.match_info.get("check", "")
        if name and name not in checks:
            raise web.HTTPNotFound(text=f"unknown check: {name!r}\n")
        selected = {name: checks[name]} if name else checks
        results = {each: check() for each, check in selected.items()}
        if "verbose" not in request.query:
            return web.Response(text="ok") if all(results.values()) else _report(probe, results)
        return _report(probe, results, notes())

    for path in (f"/{probe}", f"/{probe}/", f"/{probe}/{{check}}"):
        application.router.add_get(path, answer)


def _report(probe: str, results: Mapping[str, bool], notes: Iterable[str] = ()) -> web.Response:
    is_healthy = all(results.values())
    lines = [f"[+]{name} ok" if passed else f"[-]{name} failed: not yet" for name, passed in results.items()]
    lines += [f"[!]{note}" for note in notes]
    text = "\n".join([*lines, f"{probe} check {'passed' if is_healthy else 'failed'}", ""])
    return web.Response(text=text, status=200 if is_healthy else 500)
