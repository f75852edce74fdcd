"""The linear strategy, which says that it begins."""

from typing import Any

from ansible.plugins.strategy.linear import StrategyModule as Linear
from ansible.utils.display import Display

DOCUMENTATION = """
name: announced
short_description: linear, announced
description: [as linear]
author: [rolecall]
options: {}
"""


class StrategyModule(Linear):  # type: ignore[misc]
    def run(self, iterator: Any, play_context: Any) -> int:
        Display().display("the strategy begins")
        result: int = super().run(iterator, play_context)
        return result
