"""All groups of flags, in the order of the help."""

from collections.abc import Iterator

from rolecall.cli.ansible_flags import ANSIBLE
from rolecall.cli.election_flags import ELECTION
from rolecall.cli.flag import Flag, FlagGroup
from rolecall.cli.log_flags import LOGS
from rolecall.cli.metrics_flags import METRICS
from rolecall.cli.operator_flags import OPERATOR

GROUPS: tuple[FlagGroup, ...] = (OPERATOR, ANSIBLE, LOGS, METRICS, ELECTION)


def all_flags() -> Iterator[Flag]:
    """Yield every flag."""
    for group in GROUPS:
        yield from group.flags
