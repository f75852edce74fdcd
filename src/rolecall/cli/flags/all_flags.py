"""All groups of flags, in the order of the help."""

from collections.abc import Iterator

from rolecall.cli.flags.ansible_flags import ANSIBLE
from rolecall.cli.flags.election_flags import ELECTION
from rolecall.cli.flags.flag import Flag, FlagGroup
from rolecall.cli.flags.log_flags import LOGS
from rolecall.cli.flags.metrics_flags import METRICS
from rolecall.cli.flags.operator_flags import OPERATOR

GROUPS: tuple[FlagGroup, ...] = (OPERATOR, ANSIBLE, LOGS, METRICS, ELECTION)


def all_flags() -> Iterator[Flag]:
    """Yield every flag."""
    for group in GROUPS:
        yield from group.flags
