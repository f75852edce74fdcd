"""Writes down what it is told."""

import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: written
type: notification
short_description: writes a file
description: [writes down what it is told]
author: [rolecall]
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "written"

    def _write(self, line: str) -> None:
        with (Path(os.environ["PARITY_SCRATCH"]) / "callback").open("a") as file:
            file.write(line + "\n")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._write(f"play {play.name} {Path.cwd() != Path('/')}")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(f"ok {result.task.name}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._write(f"end {sorted(stats.processed)}")
