from pathlib import Path

import pytest
import yaml

from rolecall.workbench.controlplane.components import COMPONENTS, KUBELET, STAGES, Layout, command_line, node

LAYOUT = Layout(Path("/state"))
PROGRAMS = {name: Path("/programs") / name for name in COMPONENTS if name != KUBELET}


def _options(component: str, *, keeps_history: bool = False) -> dict[str, str]:
    _, *arguments = command_line(component, PROGRAMS, LAYOUT, 20001, keeps_history=keeps_history)
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


@pytest.mark.parametrize("component", PROGRAMS)
def test_no_program_listens_on_the_network_except_the_api_server_on_loopback(component: str) -> None:
    options = _options(component)
    if component == "kube-apiserver":
        assert (options["bind-address"], options["secure-port"]) == ("127.0.0.1", "20001")
        return
    assert options.get("secure-port", "0") == "0"
    assert all(value.startswith("unix://") for name, value in options.items() if name.startswith("listen-"))
    assert "server-address" not in options


def test_access_is_checked_as_on_a_real_cluster() -> None:
    options = _options("kube-apiserver")
    assert options["authorization-mode"] == "Node,RBAC"
    assert "OwnerReferencesPermissionEnforcement" in options["enable-admission-plugins"].split(",")
    assert _options("kube-controller-manager")["use-service-account-credentials"] == "true"


def test_api_server_verifies_the_kubelet_and_authenticates_to_it() -> None:
    options = _options("kube-apiserver")
    assert options["kubelet-certificate-authority"] == "/state/certificates/authority.crt"
    assert options["kubelet-client-certificate"] == "/state/certificates/kube-apiserver-kubelet-client.crt"


@pytest.mark.parametrize(
    ("component", "option"), [("etcd", "auto-compaction-retention"), ("kube-apiserver", "etcd-compaction-interval")]
)
def test_history_is_only_kept_where_it_is_needed(component: str, option: str) -> None:
    assert _options(component, keeps_history=True) == {**_options(component), option: "0"}
    assert _options(component).get(option) != "0"


def test_node_without_kubelet_has_no_endpoint() -> None:
    """The nodes of a sandbox have none: nothing may be executed there."""
    assert node("node-1", 0)["status"] == {}
    assert node("node-1", 20001)["status"] == {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 20001}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
    }


def test_the_program_is_the_one_that_was_found() -> None:
    assert command_line("etcd", PROGRAMS, LAYOUT, 1)[0] == "/programs/etcd"


def test_every_stage_has_a_name_of_its_own_and_a_kind() -> None:
    stages = list(yaml.safe_load_all(STAGES.read_text()))
    names = [stage["metadata"]["name"] for stage in stages]
    assert len(set(names)) == len(names)
    assert {stage["spec"]["resourceRef"]["kind"] for stage in stages} == {
        "Node",
        "Pod",
        "PersistentVolume",
        "PersistentVolumeClaim",
    }
