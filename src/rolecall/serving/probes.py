"""The health probes: liveness and readiness.

``/healthz`` returns 200 while the event loop runs. ``/readyz`` returns 200 once every informer has synced, or knows
that it cannot sync for now; in a leader election, followers are ready like the leader. Each check has its own path, for
example ``/healthz/ping``, and ``?verbose`` lists all checks.
"""

from collections.abc import Callable, Mapping

from aiohttp import web

Check = Callable[[], bool]


def probes_application(is_ready: Check) -> web.Application:
    """Return the application that serves the probes."""
    application = web.Application()
    _add(application, "healthz", {"ping": lambda: True})
    _add(application, "readyz", {"readyz": lambda: True, "informers": is_ready})
    return application


def _add(application: web.Application, probe: str, checks: Mapping[str, Check]) -> None:
    async def answer(request: web.Request) -> web.Response:
        name = request.match_info.get("check", "")
        if name and name not in checks:
            raise web.HTTPNotFound(text=f"unknown check: {name!r}\n")
        selected = {name: checks[name]} if name else checks
        return _answer(probe, {each: check() for each, check in selected.items()}, verbose="verbose" in request.query)

    for path in (f"/{probe}", f"/{probe}/", f"/{probe}/{{check}}"):
        application.router.add_get(path, answer)


def _answer(probe: str, results: Mapping[str, bool], *, verbose: bool) -> web.Response:
    is_healthy = all(results.values())
    if is_healthy and not verbose:
        return web.Response(text="ok")
    lines = [f"[+]{name} ok" if passed else f"[-]{name} failed: not yet" for name, passed in results.items()]
    text = "\n".join([*lines, f"{probe} check {'passed' if is_healthy else 'failed'}", ""])
    return web.Response(text=text, status=200 if is_healthy else 500)
