"""The W3C trace context of proxied requests: which span of which trace the API server continues.

A request that has a ``traceparent`` of its own keeps it: the role has its reasons, and what it began goes on in the API
server. Any other gets that of the run's trace, if the run has one. Without a trace nothing is read or changed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_VALID: Final = re.compile(r"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

NewTraceparent = Callable[[], str]
"""Returns the ``traceparent`` for one more request of a run."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The ``traceparent`` that a request had when it came (``carried``), or that it was given (``given``)."""

    given: str = ""
    carried: str = ""

    @classmethod
    def of_request(
        cls, headers: CIMultiDictProxy[str] | CIMultiDict[str], new_traceparent: NewTraceparent | None
    ) -> "TraceContext":
        """Return the context of a request; it is empty if its run has no trace."""
        if new_traceparent is None:
            return NO_CONTEXT
        found = headers.getall(TRACEPARENT, [])
        if len(found) == 1 and _VALID.fullmatch(found[0]):
            return cls(carried=found[0])
        return cls(given=new_traceparent())

    def put_into(self, headers: CIMultiDict[str]) -> None:
        """Put what was given in place of what came; a ``tracestate`` belongs to the ``traceparent`` beside it."""
        if self.given:
            headers.popall(TRACESTATE, None)
            headers[TRACEPARENT] = self.given


NO_CONTEXT: Final = TraceContext()
