"""Builds the Go programs of the tests.

A program is built once, with the Go that the embedded control plane is built with, and kept in the cache under the sum
of its sources.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rolecall.workbench.controlplane.binaries import cache_root, find_go

_SOURCES = ("go.mod", "go.sum", "main.go")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}


def built(directory: Path) -> Path:
    """Return the program in a directory, from the cache if it is there. Raises CalledProcessError."""
    sums = hashlib.sha256(b"\0".join((directory / name).read_bytes() for name in _SOURCES))
    program = cache_root() / f"{directory.name}-{sums.hexdigest()[:16]}"
    if not program.is_file():
        _build(directory, program)
    return program


def _build(directory: Path, program: Path) -> None:
    """Build the program whole or not at all; a second process that builds it at the same time does no harm."""
    program.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"Building tests/{directory.name}, a minute on two cores, the first time\n")
    with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
        made = Path(temporary) / program.name
        command = [str(find_go()), "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
        subprocess.run(command, cwd=directory, env=os.environ | _ENVIRONMENT, check=True)
        made.replace(program)
