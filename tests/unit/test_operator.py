import subprocess
import sys

STOP = """
import asyncio, time
from rolecall import operator

class Manager:
    async def run(self):
        pass

operator.STOP_LIMIT_SECONDS = {limit}
asyncio.run(operator._run(Manager(), [], keeps_files=False))
{rest}
"""


def test_a_stop_that_hangs_ends_and_shows_where_it_was() -> None:
    script = STOP.format(limit=0.5, rest="time.sleep(300)")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 1
    assert 'File "<string>", line 11 in <module>' in ended.stderr


def test_a_stop_in_time_says_nothing() -> None:
    script = STOP.format(limit=40, rest="")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
