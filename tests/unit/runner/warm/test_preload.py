"""Modules that the fork server imports before the first run."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from rolecall.runner.warm.preload import preload
preload([Path(sys.argv[1])], [])
from kubernetes.client.apis import core_v1_api
import kubernetes.client.apis
print(kubernetes.client.apis.core_v1_api.CoreV1Api is core_v1_api.CoreV1Api)
print(*(name for name in sys.modules if name.startswith("kubernetes.client.api.")))
"""


def test_role_with_k8s_exec_loads_the_core_api_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "main.yml").write_text("- kubernetes.core.k8s_exec: {namespace: a, pod: b, command: c}\n")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    is_usable, loaded = done.stdout.splitlines()
    assert is_usable == "True"
    assert loaded.split() == ["kubernetes.client.api.core_v1_api"]
