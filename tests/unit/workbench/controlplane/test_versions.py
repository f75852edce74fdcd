import re
from pathlib import Path

from rolecall.workbench.controlplane.binaries import module_directory
from rolecall.workbench.controlplane.download import ETCD, KUBERNETES, KWOK, PROGRAM_NAMES


def _required(module: str) -> str:
    text = (module_directory() / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert found is not None, f"{module} is not required"
    return found[1]


def test_the_modules_pin_the_releases_that_the_package_names() -> None:
    assert _required("k8s.io/kubernetes") == KUBERNETES
    assert _required("go.etcd.io/etcd/server/v3") == ETCD
    assert _required("sigs.k8s.io/kwok") == KWOK


def test_every_staging_module_is_replaced_by_the_release_that_matches() -> None:
    text = (module_directory() / "go.mod").read_text()
    staging = KUBERNETES.replace("v1.", "v0.")
    replaced = dict(re.findall(r"^\s+(k8s\.io/\S+) => \S+ (v\S+)$", text, re.MULTILINE))
    unreplaced = re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0 ", text, re.MULTILINE)
    assert set(replaced.values()) == {staging}
    assert set(unreplaced) <= set(replaced)


def test_sums_are_committed_beside_the_module() -> None:
    assert Path(module_directory(), "go.sum").stat().st_size > 0


def test_kubectl_is_among_the_programs() -> None:
    assert "kubectl" in PROGRAM_NAMES
