"""The images of the tests, built as users build them and loaded into the cluster.

The names are those of the pages about the image and the deployment, whose commands build and deploy them.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.e2e.cluster import PROJECT, Cluster

OPERATOR = "registry.example/rolecall:0.1.0"
CHANGED = "registry.example/rolecall:0.2.0"
RUNNER = "registry.example/rolecall-runner:0.1.0"
DROP_IN = "registry.example/rolecall-drop-in:0.1.0"
MARK = """
- name: Leave a mark, which only the changed role does
  kubernetes.core.k8s:
    state: patched
    api_version: apps/v1
    kind: Deployment
    name: "{{ deployment_name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    definition: {metadata: {annotations: {e2e.rolecall.dev/role: changed}}}
"""


def base() -> str:
    """Return the base that images are built on."""
    (default,) = re.findall(r"^ARG BASE=(.+)$", (PROJECT / "build/Dockerfile").read_text(), re.MULTILINE)
    return os.environ.get("BASE") or default


def build(image: str, directory: Path, base_image: str) -> None:
    """Build an image from a directory with a Dockerfile."""
    engine = subprocess.run(["build/engine"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    command = [*engine, "build", "--build-arg", f"BASE={base_image}", "--tag", image, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_bare_base() -> str:
    """Build a base without a package manager of its own and return its name."""
    image = "localhost/bare-base:e2e"
    build(image, PROJECT / "tests/e2e/bare_base", base())
    return image


def build_changed(cluster: Cluster, directory: Path) -> str:
    """Build an image on the operator's with one more task in the role foo, and load it."""
    shutil.copytree(PROJECT / "roles/foo", directory / "foo")
    with (directory / "foo/tasks/main.yml").open("a") as tasks:
        tasks.write(MARK)
    (directory / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY foo ${HOME}/roles/foo\n")
    build(CHANGED, directory, OPERATOR)
    cluster.load(CHANGED)
    return CHANGED


def load_nginx(cluster: Cluster) -> None:
    """Load a stand-in for nginx:latest, and let pods use it without asking a registry."""
    image = "docker.io/library/nginx:latest"
    build(image, PROJECT / "tests/e2e/nginx", base())
    cluster.load(image)
    cluster.kubectl("apply", "-f", str(PROJECT / "tests/e2e/nginx/policy.yaml"))
