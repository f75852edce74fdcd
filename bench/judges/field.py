"""Public operators as a judge: ``bench.field`` for the projects that a file lists, by outcome and written objects."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bench import field
from bench.contenders import PEER
from bench.field_projects import ProjectError
from bench.judges.verdicts import DIRECT, WARM, Judged, Outcome, State
from bench.observer import SUCCESSFUL

NAME: Final = "public operators"
FILE: Final = "field.yaml"


def run_projects(projects: Path, options: argparse.Namespace) -> Judged:
    """Run all projects; the direct column is that of the peer, if there is one."""
    arguments = [str(projects), f"--timeout={options.timeout}"]
    arguments += [f"--peer={options.peer.absolute()}"] if options.peer else []
    arguments += [f"--peer-programs={options.peer_programs.absolute()}"] if options.peer_programs else []
    try:
        return judged(field.run_projects(field.parser().parse_args(arguments)))
    except (ProjectError, OSError) as error:
        return Judged(NAME, {}, error=str(error))


def judged(found: Iterable[field.Runs]) -> Judged:
    """Return the outcomes of the runs of ``bench.field``: a project passes if outcome and objects are the peer's."""
    outcomes = {}
    for runs in found:
        ours, peer, objects = runs.outcomes[WARM], runs.outcomes.get(PEER, SUCCESSFUL), runs.comparison
        is_equal = ours == peer and not objects.differences
        outcomes[runs.project] = {WARM: Outcome(_state(ours, passed=is_equal), message=f"{objects}; {ours}")}
        if PEER in runs.outcomes:
            outcomes[runs.project][DIRECT] = Outcome(_state(peer, passed=peer == SUCCESSFUL), message=peer)
    return Judged(NAME, outcomes, through=(WARM,))


def _state(outcome: str, *, passed: bool) -> State:
    if outcome.startswith(field.NOT_RUN):
        return State.NOT_RUN
    return State.PASSED if passed else State.FAILED
