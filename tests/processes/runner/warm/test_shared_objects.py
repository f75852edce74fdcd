"""Processes that are forked from a process with shared objects copy few of its pages. Each test has its own process."""

import subprocess
import sys

import pytest

from rolecall.runner.warm.shared_objects import VERSIONS, reason_not_to_share

IMMORTAL_ONLY = pytest.mark.skipif(bool(reason_not_to_share()), reason=reason_not_to_share() or "shared")
BYTECODE_ONLY = pytest.mark.skipif(
    bool(reason_not_to_share()) or sys.version_info < (3, 13), reason="this Python doesn't write to bytecode"
)
FORKED = """
import gc, os, resource, sys
from rolecall.runner.warm import shared_objects

def faults_of_child(work):
    reading, writing = os.pipe()
    if not os.fork():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        work()
        os.write(writing, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 20))
"""


def run(script: str) -> str:
    """Run a script in an interpreter of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-c", FORKED + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("version", "reason"),
    [((3, 11), "has no immortal objects"), ((3, 15), "not tested"), *((each, "") for each in VERSIONS)],
)
def test_only_tested_versions_share(version: tuple[int, int], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert reason in reason_not_to_share()
    assert bool(reason) is bool(reason_not_to_share())


@IMMORTAL_ONLY
def test_child_that_reads_objects_copies_no_pages() -> None:
    """They are of each sort: tracked by the garbage collector, or reachable only from another object, or from code."""
    before, after = run("""
def function():
    return "a constant", (1.5, "another"), b"bytes"

objects = [{f"key {n}": [f"value {n}", (n + 0.5, f"{n}")], "type": type(f"T{n % 50}", (), {})} for n in range(20_000)]

def read():
    kept = []
    for each in objects:
        for name, value in each.items():
            kept.append((name, value))
            kept.extend(value if isinstance(value, list) else [value])
        kept.extend(function())
        if len(kept) > 1000:
            kept.clear()

read()
print(faults_of_child(read))
gc.freeze()
gc.unfreeze()
shared_objects.share_objects()
gc.freeze()
print(faults_of_child(read))
for each in (objects, objects[0], objects[0]["key 0"][0], objects[0]["key 0"][1][0], function.__code__.co_consts[1]):
    assert sys.getrefcount(each) == shared_objects.IMMORTAL, each
assert sys.getrefcount(object()) < 10
""").split()
    assert int(after) * 4 < int(before)


def test_new_objects_of_children_are_next_to_each_other() -> None:
    before, after = run("""
kept = [[bytes(n % 200) for n in range(300)] for _ in range(3000)]
for each in kept:
    del each[::3]  # leaves free blocks in all pages

def allocate():
    made = [bytes(n % 200) for n in range(20_000)]

print(faults_of_child(allocate))
shared_objects.take_free_blocks()
print(faults_of_child(allocate))
""").split()
    assert int(after) < int(before) * 0.8


@BYTECODE_ONLY
def test_functions_that_children_have_used_get_copies_of_their_code() -> None:
    output = run("""
for n in range(2000):
    exec(f'''
def f{n}(x):
    y = [lambda: x + {n} for _ in range(2)]
    return {n} if x else y[0]()
''')
functions = [globals()[f"f{n}"] for n in range(2000)]
functions[7](0)  # has run in the server
used = functions[::10]
codes = [each.__code__ for each in functions]
code = shared_objects.CodeInUse.find()
shared_objects.share_objects()

def use():
    assert [each(1) for each in used] == list(range(0, 2000, 10))
    assert [each(0) for each in used] == list(range(0, 2000, 10))

def use_and_report():
    use()
    code.report()

before = faults_of_child(use)
faults_of_child(use_and_report)
code.bring_together()
after = faults_of_child(use)
copied = [each for each, old in zip(functions, codes) if each.__code__ is not old]
assert copied == used, (len(copied), len(used))
assert all(each.__code__ == old for each, old in zip(functions, codes))
assert after * 2 < before, (before, after)
again = [each.__code__ for each in functions]
code.bring_together()
assert all(each.__code__ is old for each, old in zip(functions, again))
print("done")
""")
    assert output == "done\n"


def test_probe_stops_sharing_if_immortal_objects_are_not_as_expected() -> None:
    """On the tested versions, the expectation is changed; on older ones, it is wrong by itself."""
    assert "RuntimeError" in run("""
shared_objects.IMMORTAL = 1 << 30 if not shared_objects.reason_not_to_share() else shared_objects.IMMORTAL
class Counts:
    @staticmethod
    def getrefcount(_):
        return 2
shared_objects.sys = Counts
try:
    shared_objects.share_objects()
except RuntimeError as error:
    print(repr(error))
""")
