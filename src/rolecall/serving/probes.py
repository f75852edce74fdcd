"""The probes: does the operator live, is it ready to work.

``/healthz`` is answered with 200 as long as the loop turns. ``/readyz`` is answered with 200 once every informer knows
what is there, or knows that it cannot for now; a follower in a leader election is ready like the leader. Each check can
also be asked alone, for example ``/healthz/ping``, and ``?verbose`` lists them.
"""

from collections.abc import Callable, Mapping

from aiohttp import web

Check = Callable[[], bool]


def probes_application(is_ready: Check) -> web.Application:
    """Return the application that answers probes."""
    application = web.Application()
    _add(application, "healthz", {"ping": lambda: True})
    _add(application, "readyz", {"readyz": lambda: True, "informers": is_ready})
    return application


def _add(application: web.Application, probe: str, checks: Mapping[str, Check]) -> None:
    async def answer(request: web.Request) -> web.Response:
        name = request.match_info.get("check", "")
        if name and name not in checks:
            raise web.HTTPNotFound(text=f"there is no check {name!r}\n")
        asked = {name: checks[name]} if name else checks
        return _answer(probe, {each: check() for each, check in asked.items()}, verbose="verbose" in request.query)

    for path in (f"/{probe}", f"/{probe}/", f"/{probe}/{{check}}"):
        application.router.add_get(path, answer)


def _answer(probe: str, results: Mapping[str, bool], *, verbose: bool) -> web.Response:
    is_well = all(results.values())
    if is_well and not verbose:
        return web.Response(text="ok")
    lines = [f"[+]{name} ok" if passed else f"[-]{name} failed: not yet" for name, passed in results.items()]
    text = "\n".join([*lines, f"{probe} check {'passed' if is_well else 'failed'}", ""])
    return web.Response(text=text, status=200 if is_well else 500)
