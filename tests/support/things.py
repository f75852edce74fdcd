"""Kinds for tests of the runner itself, and projects with small roles for them.

Its operators run as administrator, because the account of ``deploy/rbac`` rightly knows nothing of this kind.
"""

import textwrap
from pathlib import Path

from rolecall.kube.references import GVK, RawObject

THING = GVK("test.rolecall.dev", "v1", "Thing")
KINDS = tuple(GVK(THING.group, THING.version, f"Thing{letter}") for letter in "abcdefghijklmnop")
"""Further kinds like it, for operators with a kind for each role."""

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "status": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"small": {"type": "integer", "maximum": 10}},
        },
    },
}


def definition_of(gvk: GVK) -> RawObject:
    """Return the definition of a kind whose spec and status accept anything."""
    singular = gvk.kind.lower()
    version = {"name": gvk.version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{gvk.group}"},
        "spec": {
            "group": gvk.group,
            "scope": "Namespaced",
            "names": {"kind": gvk.kind, "plural": f"{singular}s", "singular": singular},
            "versions": [{**version, "schema": {"openAPIV3Schema": SCHEMA}}],
        },
    }


DEFINITION = definition_of(THING)
DEFINITIONS = [DEFINITION, *map(definition_of, KINDS)]

WATCH = """
- group: test.rolecall.dev
  version: v1
  kind: Thing
  role: thing
"""

MANIFEST = """
apiVersion: test.rolecall.dev/v1
kind: Thing
metadata: {name: one}
spec: {size: 1}
"""


def write_project(directory: Path, tasks: str, watch: str = "") -> Path:
    """Write watches.yaml with one entry (and further keys for it) and the role ``thing`` into a directory."""
    entry = WATCH + textwrap.indent(textwrap.dedent(watch).strip(), "  ") + "\n"
    (directory / "watches.yaml").write_text(entry)
    return write_role(directory, tasks)


def write_role(directory: Path, tasks: str, name: str = "thing") -> Path:
    """Write a role's tasks atomically, as an editor does, and return the role's directory."""
    role = directory / "roles" / name
    (role / "tasks").mkdir(parents=True, exist_ok=True)
    new = role / "tasks" / "main.yml.new"
    new.write_text(textwrap.dedent(tasks))
    new.replace(role / "tasks" / "main.yml")
    return role
