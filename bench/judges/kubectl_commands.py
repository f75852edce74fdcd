"""Commands of kubectl, run in order with the KUBECONFIG of the environment: ``kubectl_commands.py RESULTS``.

Each command's exit code and output, without what differs between two equal clusters (times, uids, versions,
addresses, random names), goes to the file RESULTS, as JSON. The program imports only the standard library, because the
run of an operator starts it.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_FILES: Final = {
    "map.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: map, labels: {app: map}}, data: {a: '1', b: '2'}}",
    "changed.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: map, labels: {app: map}}, data: {a: '3'}}",
    "invalid.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: Not_Valid}}",
    "unknown.yaml": "{apiVersion: example.com/v1, kind: Unknown, metadata: {name: one}}",
    "list.yaml": "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: one}, "
    "stringData: {a: b}}, {apiVersion: v1, kind: ServiceAccount, metadata: {name: one}}]}",
    "kustomization.yaml": "{namePrefix: kustomized-, resources: [map.yaml]}",
    "crd.yaml": "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: "
    "{name: commands.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: Command, "
    "plural: commands}, versions: [{name: v1, served: true, storage: true, subresources: {status: {}, scale: "
    "{specReplicasPath: .spec.size, statusReplicasPath: .status.size}}, schema: {openAPIV3Schema: {type: object, "
    "properties: {spec: {type: object, properties: {size: {type: integer, minimum: 0}}}, status: {type: object, "
    "properties: {size: {type: integer}}}}}}}]}}",
    "command.yaml": "{apiVersion: example.com/v1, kind: Command, metadata: {name: one}, spec: {size: 1}}",
}
COMMANDS: Final = Path(__file__).with_suffix(".txt")
"""One command a line, without ``kubectl``; its words are separated by single spaces, and there is no quoting."""
_VARYING: Final = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "<time>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "<time>"),
    (r"Context \"[^\"]+\"", "<context>"),
    (r"\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]?\w+", "<time>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"(resourceVersion\"?: ?)\"?\d+\"?", r"\1<version>"),
    (r"https?://(?:127\.0\.0\.1|localhost):\d+[^\s\"']*", "<server>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "<address>"),
    (r"\beyJ[\w.-]+", "<token>"),
    (r"\b(web|job|kustomized-map)-(?:[bcdf-hj-np-tv-z2-9]{8,10})(?:-[bcdf-hj-np-tv-z2-9]{5})?\b", r"\1-<random>"),
    (r"\b(job)-[bcdf-hj-np-tv-z2-9]{5}\b", r"\1-<random>"),
    (r"\bdebugger-\w{5}\b", "debugger-<random>"),
    (r"/tmp/[\w./-]+", "<file>"),  # noqa: S108 -- a pattern
    (r"<(?:unknown|invalid)>|\b(?:\d+[smhd])+\b(?: \(x\d+ over (?:\d+[smhd])+\))?", "<age>"),
    (r"pod-template-hash=[\w]+", "pod-template-hash=<random>"),
    (r"X509SHA256=\w+", "<credential>"),
    (r"Waiting for .*\n", ""),
    (r"[ \t]+", " "),
)


def normalized(output: str) -> str:
    """Return an output without what differs between equal clusters."""
    for pattern, replacement in _VARYING:
        output = re.sub(pattern, replacement, output)
    return "\n".join(line.rstrip() for line in output.splitlines())


def main(results: Path) -> None:
    """Run all commands in a new directory."""
    found: dict[str, list[object]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, text in _FILES.items():
            (Path(directory) / name).write_text(f"---\n{text}")  # kubectl takes a file that starts with { for JSON
        for number, command in enumerate(COMMANDS.read_text().splitlines(), 1):
            words = ["kubectl", *command.split(" ")]
            done = subprocess.run(
                ["env", "KUBE_EDITOR=sed -i s/app:/application:/", *words],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            found[f"{number:03} kubectl {command}"] = [done.returncode, normalized(done.stdout)]
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
