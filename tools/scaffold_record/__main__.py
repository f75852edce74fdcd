"""Writes the templates of the recorded runs that new projects have: ``python -m tools.scaffold_record``.

For a namespaced and a cluster-scoped kind, it creates a project, runs its operator on the embedded control plane, and
uses the first successful run of the sample.
Run it again when the tasks of the scaffold or the format of records change.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tools.scaffold_record.generalise import DOMAIN, KIND, template_of

from rolecall.runner.record.files import FAILED_SUFFIX, SUFFIX
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, OperatorProcess, read_manifests
from rolecall.workbench.project.scaffold import FOLDER, NewKind, create_api, init_project

TEMPLATES = {"namespaced": KIND, "cluster": replace(KIND, is_namespaced=False)}
TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.2


def record_sample(project: Path, kind: NewKind) -> Path:
    """Create a project, and return the record of the first successful run of its sample."""
    init_project(project, "web", DOMAIN).write()
    create_api(project, kind).write()
    with ControlPlane("scaffold-record", report=print) as plane:
        applier = Applier(plane.kubeconfig)
        applier.apply(read_manifests(project / "deploy/crds"))
        operator = OperatorProcess(project, plane.kubeconfig, project / "operator.log", ("--record-dir", "records"))
        operator.start()
        try:
            applier.apply(read_manifests(project / "deploy/samples"))
            return _first_record(project / "records", operator)
        finally:
            operator.stop()


def _first_record(directory: Path, operator: OperatorProcess) -> Path:
    for _ in range(int(TIMEOUT_SECONDS / POLL_SECONDS)):
        found = [path for path in sorted(directory.glob(f"*{SUFFIX}")) if not path.name.endswith(FAILED_SUFFIX)]
        if found:
            return found[0]
        time.sleep(POLL_SECONDS)
    sys.exit(f"no run succeeded within {TIMEOUT_SECONDS:.0f} s:\n{operator.warnings()}")


def main() -> None:
    """Write the templates."""
    for tree, kind in TEMPLATES.items():
        path = FOLDER / tree / "tests/records/_name_.jsonl.tmpl"
        with tempfile.TemporaryDirectory() as directory:
            project = Path(directory).resolve() / "project"
            text = template_of(record_sample(project, kind), project)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"{path}: {len(text)} bytes")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
