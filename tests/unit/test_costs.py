"""The costs of tests and fixtures: no time is lost or counted twice, with and without pytest-xdist."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

TESTS = """
import subprocess
import sys
import threading

import pytest

SECONDS = 0.3
SPIN = f"import time\\nwhile time.process_time() < {SECONDS}: pass"


def wait():
    assert not threading.Event().wait(SECONDS)


def spin():
    subprocess.run([sys.executable, "-c", SPIN], check=True)


@pytest.fixture
def inner():
    wait()
    yield
    spin()


@pytest.fixture
def outer(request):
    request.getfixturevalue("inner")


@pytest.mark.parametrize("number", [1, 2])
def test_spins(number, outer):
    spin()


def test_waits():
    wait()


@pytest.fixture
def broken():
    yield
    raise RuntimeError


@pytest.fixture
def fails():
    raise RuntimeError


def test_with_broken_teardown(broken):
    pass


def test_with_broken_setup(inner, fails):
    pass
"""

LINE = re.compile(r" *(?P<wall>[0-9.]+) +(?P<cpu>[0-9.]+) +(?P<uses>\d+)  (?P<part>\S.*)")


@pytest.fixture
def directory(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a directory with the tests above, where the plugin can be imported."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["tests.costs"]')
    pytester.makepyfile(test_it=TESTS)
    return pytester


def costs(directory: pytest.Pytester, *arguments: str) -> dict[str, tuple[float, float, int]]:
    """Run the tests, and return wall seconds, CPU seconds, and uses of each part printed, longest first."""
    result = directory.runpytest_subprocess("-p", "xdist", *arguments)
    result.assert_outcomes(passed=4, errors=2)
    found = [match for match in map(LINE.fullmatch, result.outlines) if match]
    return {each["part"]: (float(each["wall"]), float(each["cpu"]), int(each["uses"])) for each in found}


@pytest.mark.parametrize("arguments", [(), ("--numprocesses", "2")], ids=["one process", "two workers"])
def test_each_part_has_its_own_times(directory: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    """The times are at least what the tests wait and compute, and less than half of it where they do neither."""
    parts = costs(directory, "--costs", "99", *arguments)

    for number in (1, 2):
        assert parts[f"call test_it.py::test_spins[{number}]"][1] >= 0.3, "the CPU time of a child counts"
        assert parts[f"setup test_it.py::test_spins[{number}]"][1] < 0.15, "without the fixtures"
        assert parts[f"teardown test_it.py::test_spins[{number}]"][1] < 0.15, "without the fixtures"
    wall, cpu, uses = parts["call test_it.py::test_waits"]
    assert wall >= 0.3
    assert cpu < 0.15
    assert uses == 1

    wall, cpu, uses = parts["setup fixture test_it.py::inner"]
    assert wall >= 0.9
    assert cpu < 0.45
    assert uses == 3
    wall, cpu, uses = parts["teardown fixture test_it.py::inner"]
    assert wall >= cpu >= 0.9
    assert uses == 3
    assert parts["setup fixture test_it.py::outer"][1:] < (0.15, 3), "without the fixture that it requests"
    assert parts["teardown fixture test_it.py::broken"][2] == 1
    assert parts["teardown fixture test_it.py::fails"][2] == 1


def test_only_the_longest_are_printed(directory: pytest.Pytester) -> None:
    parts = costs(directory, "--costs", "3")
    assert len(parts) == 4
    *longest, total = parts
    assert longest[0] == "teardown fixture test_it.py::inner"
    assert re.fullmatch(r"all \d+ parts", total)
    assert parts[total][0] >= sum(parts[part][0] for part in longest) - 0.05


def test_ci_prints_costs_without_the_option(directory: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert costs(directory) == {}
    monkeypatch.setenv("CI", "true")
    assert "call test_it.py::test_waits" in costs(directory)
