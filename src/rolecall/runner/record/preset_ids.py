"""Ids of spans: random, unless a request was sent on with its id before its span is made."""

import threading

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class PresetIds(RandomIdGenerator):
    """Gives the next span of this thread the id that was preset, and any other a random one."""

    def __init__(self) -> None:
        self._preset = threading.local()

    def preset(self, span_id: int) -> None:
        """Give the next span of this thread this id."""
        self._preset.span_id = span_id

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        span_id: int = getattr(self._preset, "span_id", 0)
        self._preset.span_id = 0
        return span_id or super().generate_span_id()
