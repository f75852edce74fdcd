"""Public operators as a judge: ``bench.field`` for the projects that a file lists, by outcome and written objects."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.judges.verdicts import DIRECT, WARM, Judged, Outcome
from bench.stage import PROJECT

NAME: Final = "public operators"
FILE: Final = "field.yaml"
_SUCCESSFUL: Final = "Successful"


def run_projects(projects: Path, options: argparse.Namespace) -> Judged:
    """Run all projects; the direct column is that of the peer, if there is one."""
    command = [sys.executable, "-m", "bench.field", str(projects), f"--timeout={options.timeout}"]
    command += [f"--peer={options.peer.absolute()}"] if options.peer else []
    command += [f"--peer-programs={options.peer_programs.absolute()}"] if options.peer_programs else []
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return Judged(NAME, {}, error=f"bench.field exited with {done.returncode}")
    return read_report(done.stdout)


def read_report(report: str) -> Judged:
    """Return the outcomes in a report of ``bench.field``: a project passes if outcome and objects are the peer's."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in report.splitlines() if line[:1] == "|"]
    outcomes = {}
    for line in lines[2:]:
        row = dict(zip(lines[0], line, strict=True))
        ours, peer, objects = row["outcome, rolecall"], row.get("outcome, peer", _SUCCESSFUL), row["objects"]
        is_equal = ours == peer and "difference" not in objects
        found = {WARM: Outcome(is_equal, message=f"{ours}; {objects}")}
        if "outcome, peer" in row:
            found[DIRECT] = Outcome(peer == _SUCCESSFUL, message=peer)
        outcomes[row["project"]] = found
    return Judged(NAME, outcomes, through=(WARM,))
