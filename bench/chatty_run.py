"""Stands for the process of a run with very many events: ``python bench/chatty_run.py ARTIFACTS EVENTS``.

It leaves a file for each event, as ansible-runner does, and then writes the events as fast as the operator reads them.
It spends as little CPU time as it can, because the operator's is measured.
"""

import json
import sys
from pathlib import Path

from rolecall.runner.runs.events import RunEvent

_TEXT = "ok: [localhost] => " + "x" * 480


def main(artifacts: Path, count: int) -> None:
    """Write the files, then report the events and the end."""
    directory = artifacts / "job_events"
    directory.mkdir(parents=True)
    event = RunEvent("runner_on_ok", task="Chat", host="localhost", message=_TEXT, stdout=_TEXT, changed=True)
    first = directory / "0.json"
    first.write_text(_TEXT)
    for number in range(1, count):
        (directory / f"{number}.json").hardlink_to(first)
    sys.stdout.write(f"{event.to_json()}\n" * count)
    sys.stdout.write(json.dumps({"ending": {"status": "successful", "rc": 0}, "survivors": []}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
