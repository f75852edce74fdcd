"""The guide to troubleshooting, done as a reader does it: two objects fail, one is paused, and one is ready."""

from pathlib import Path

import yaml

from rolecall.kube.references import RawObject
from tests.guides import guide
from tests.integration.shell import clone, do
from tests.outcomes import check

GUIDE = guide("docs/guides/troubleshooting.md")
SPEC = {"type": "object", "properties": {"theme": {"type": "string"}}}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: RawObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Website", "plural": "websites", "singular": "website"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
            }
        ],
    },
}
TASKS = [
    {
        "name": "Publish the page",
        "ansible.builtin.fail": {"msg": "the theme {{ theme }} doesn't exist"},
        "when": "theme == 'dark'",
    }
]
START = (
    "cd {project}",
    "rolecall cluster start",
    "export KUBECONFIG=$(rolecall cluster kubeconfig)",
    "kubectl apply -f definition.yaml",
    "kubectl wait --for=condition=Established crd/websites.example.com",
    "rolecall run 2> operator.log &",
    "kubectl apply -f websites.yaml",
    "kubectl wait website/hello website/shop --for=condition=Failure --timeout=120s",
    "kubectl wait website/docs --for=condition=Paused --timeout=60s",
    "kubectl wait website/blog --for=condition=Ready --timeout=60s",
)
"""The hidden commands before the first one."""


def website(name: str, theme: str, **annotations: str) -> RawObject:
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": metadata, "spec": {"theme": theme}}


def write(path: Path, *documents: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents))


def test_commands_of_the_guide_print_the_shown_output(tmp_path: Path) -> None:
    project = tmp_path / "web"
    write(project / "watches.yaml", [{"group": "example.com", "version": "v1", "kind": "Website", "role": "website"}])
    write(project / "roles/website/tasks/main.yml", TASKS)
    write(project / "definition.yaml", DEFINITION)
    paused = website("docs", "light", **{"rolecall.dev/paused": "true"})
    write(
        project / "websites.yaml", website("hello", "dark"), website("shop", "dark"), website("blog", "light"), paused
    )
    start = "\n".join(START).format(project=project)
    check(GUIDE, do(GUIDE.steps, clone(tmp_path), tmp_path / "state", {GUIDE.steps[0].command: start}))
