"""What to try when a demo is kept: how to reach it, a plan of an edited sample, the record of a run, the rules needed.

The commands are meant to be copied, so they name real files: the edited sample is written for the first of them.
"""

import copy
import webbrowser
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.kube.references import GVK, RawObject
from rolecall.runner.record.files import SUFFIX
from rolecall.system.private_files import write_private


@dataclass(frozen=True, slots=True)
class KeptDemo:
    """A demo that goes on: its control plane's kubeconfig and programs, its operator, and the kinds in it."""

    name: str
    kubeconfig: Path
    program_directory: Path
    log: Path
    records: Path
    operator_pid: int
    kinds: tuple[GVK, ...]
    edited_sample: Path | None = None
    page: str = ""
    """The address of the live page."""


def next_steps(demo: KeptDemo) -> str:
    """Return what to try, as text with commands."""
    kinds = ",".join(f"{gvk.kind}.{gvk.group}".lower().rstrip(".") for gvk in demo.kinds)
    plan = f"\n  rolecall plan -f {demo.edited_sample}" if demo.edited_sample else ""
    newest = max(demo.records.glob(f"*{SUFFIX}"), default=None)
    show = f"\n  rolecall record show {newest}" if newest else ""
    look = f"\nLook at it: {demo.page}, or in the terminal: rolecall top --url {demo.page}" if demo.page else ""
    return f"""
Everything is still running.{look}
To use it:
  export KUBECONFIG={demo.kubeconfig}
  export PATH={demo.program_directory}:$PATH        # kubectl
  kubectl get {kinds} --all-namespaces
  tail -f {demo.log}
Try what an edited sample would change, what a run did, and which permissions the demo needed:{plan}{show}
  rolecall rbac --from {demo.records}
To stop it:
  kill {demo.operator_pid}; rolecall cluster stop --name {demo.name}"""


def open_page(page: str, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Open the live page if somebody sits at a desktop; return whether a browser was found."""
    has_desktop = bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
    return bool(page) and is_terminal and has_desktop and webbrowser.open(page)


def write_edited_sample(samples: Iterable[RawObject], kinds: Iterable[GVK], path: Path) -> Path | None:
    """Write a sample with a number in its spec raised by one, and return the file; None if no sample has one."""
    wanted = set(kinds)
    for sample in samples:
        edited = copy.deepcopy(sample)
        if GVK.of_object(sample) in wanted and _raise_number(edited.get("spec")):
            write_private(path, yaml.safe_dump(edited, sort_keys=False))
            return path
    return None


def _raise_number(value: Any) -> bool:
    """Raise the first number in a value by one; return whether there is one."""
    if not isinstance(value, dict):
        return False
    for name, inner in value.items():
        if isinstance(inner, int) and not isinstance(inner, bool):
            value[name] = inner + 1
            return True
        if _raise_number(inner):
            return True
    return False
