"""The machine, its load, and the versions that were measured, for the head of the report.

Numbers mean nothing without the machine, its load and the versions behind them, and a reader wants to repeat the
measurement: the command stands here too. Nothing that names a person or a place is read.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
from bench.stage import PROJECT
from kubernetes.client import VersionApi
from kubernetes.config import new_client_from_config

DISTRIBUTIONS = ("ansible-core", "ansible-runner", "kubernetes", "aiohttp")
_GIB = 1024**3


def load_average() -> str:
    """Return the number of processes that wanted a CPU lately: over one, five and fifteen minutes."""
    return ", ".join(f"{value:.2f}" for value in os.getloadavg())


def describe_machine(kubeconfig: Path) -> dict[str, str]:
    """Return the identification of this measurement, in the order of the report."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    processors = len(os.sched_getaffinity(0))
    libraries = ", ".join(f"{name} {version(name)}" for name in DISTRIBUTIONS)
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Machine": f"{processors} CPUs ({_processor()}), {memory:.0f} GiB, Linux {platform.release()}",
        "Versions": f"rolecall {version('rolecall')} ({_commit()}), Python {platform.python_version()}, {libraries}",
        "Kubernetes": VersionApi(new_client_from_config(str(kubeconfig))).get_code().git_version,
        "Workspaces on": _file_system(Path(tempfile.gettempdir())),
        "Command": " ".join(["python", "bench/run.py", *sys.argv[1:]]),
    }


def _processor() -> str:
    found = re.search(r"model name\s*: *(.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def _commit() -> str:
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "no git"


def _file_system(directory: Path) -> str:
    """Return the type of the file system of a directory: files of runs cost more on a disk than in memory."""
    mounts = [part for part in psutil.disk_partitions(all=True) if directory.resolve().is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "an unknown file system"
