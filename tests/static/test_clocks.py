"""An operator has one clock and one source of randomness, so that a seed decides everything that a simulated one does.

Its parts take the time from the clock that ``run_operator`` receives or from the event loop, and random numbers from
``random``. Secrets, and what only real processes, files, and certificates need, may come from elsewhere. ``warm`` isn't
examined, because its subject is real processes.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.static.repository import ROOT

PACKAGE = ROOT / "src" / "rolecall"
FORBIDDEN = {
    "time": {"clock_gettime", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"},
    "datetime": {"now", "today", "utcnow"},
    "date": {"today"},
    "secrets": {"choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe", "SystemRandom"},
    "uuid": {"uuid1", "uuid4"},
    "random": {"SystemRandom"},
    "os": {"urandom"},
}
"""Functions by their module or class."""

ALLOWED = {
    ("kube/credentials.py", "datetime.now"): "a real credential plugin has issued the credentials that expire",
    ("runner/election/supervisor.py", "time.clock_gettime"): "a process of its own, without an event loop",
    ("runner/proxy/server.py", "secrets.token_urlsafe"): "the secret of a run",
    (
        "runner/runs/disk_space.py",
        "secrets.token_hex",
    ): "a directory that replicas with a shared disk must not both use",
    ("runner/runs/disk_space.py", "time.time"): "compared with the times of files",
    ("runner/runs/disk_space.py", "time.time_ns"): "compared with the times of files",
    ("runner/runs/process.py", "time.monotonic"): "measures real processes",
    ("runner/runs/runner_process.py", "time.monotonic"): "runs in the process of a run",
    ("runner/secrets/mask.py", "secrets.token_bytes"): "the key of a mask",
    ("runner/serving/servers.py", "datetime.now"): "a real certificate, whose validity clients check",
}
"""Uses by module and function, with the reason."""


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield the forbidden functions that a module uses or imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in FORBIDDEN.get(owner, ()):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            names = FORBIDDEN.get(node.module or "", set())
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name in names)


def test_time_and_randomness_have_one_source() -> None:
    """Each use is allowed, and each allowed one is used."""
    paths = [path for part in ("runner", "kube") for path in (PACKAGE / part).rglob("*.py") if "warm" not in path.parts]
    assert len(paths) > 80
    found = {(str(path.relative_to(PACKAGE)), use) for path in paths for use in uses(ast.parse(path.read_text()))}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("started = time.monotonic()", ["time.monotonic"]),
        ("now: Callable[[], float] = time.time", ["time.time"]),
        ("from time import monotonic as clock", ["time.monotonic"]),
        ("now = dt.datetime.now(dt.UTC)", ["datetime.now"]),
        ("f'{uuid.uuid4()}'", ["uuid.uuid4"]),
        ("secrets.randbits(63)", ["secrets.randbits"]),
        ("random.SystemRandom().random()", ["random.SystemRandom"]),
        ("asyncio.get_running_loop().time()", []),
        ("self.clock.now()", []),
        ("record.secrets.values()", []),
        ("random.getrandbits(63)", []),
    ],
)
def test_uses_are_found(text: str, expected: list[str]) -> None:
    """A default value, a call, and an import count alike."""
    assert list(uses(ast.parse(text))) == expected
