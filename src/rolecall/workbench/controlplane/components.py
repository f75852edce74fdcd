"""The components of a control plane, their command lines, and the objects that it starts with.

Only the API server and the kubelet endpoint listen on a port each, on loopback; the latter accepts no client except the
API server. etcd listens on sockets in the state directory, which only its owner can enter, and the other components do
not listen. So other users of the machine cannot bypass the API server. ``rolecall.workbench.controlplane.cluster`` runs
the command lines. The YAML files of this directory have placeholders such as ``$port``.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

import yaml

HOST = "127.0.0.1"
ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
KUBELET = "kubelet"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The user that the API server is for the kubelet endpoint."""

CONTROLLERS = (CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""What works for the API server: it can be missing for a while."""

COMPONENTS = (ETCD, API_SERVER, KUBELET, *CONTROLLERS)
ETCD_SOCKET = "etcd.socket"
KEEPS_HISTORY = {ETCD: {"auto-compaction-retention": "0"}, API_SERVER: {"etcd-compaction-interval": "0"}}
"""The options with which etcd forgets no revision."""

STAGES = Path(__file__).with_name("stages.yaml")
RESPONSES_LABEL = "rolecall.dev/pod-responses"
"""The label of ConfigMaps with responses of simulated pods."""

WEBHOOKS_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True)
class Layout:
    """The paths of the files of one control plane."""

    root: Path

    @property
    def certificates(self) -> Path:
        """The directory of certificates and keys."""
        return self.root / "certificates"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def admission(self) -> Path:
        """The API server's configuration of admission."""
        return self.root / "admission.yaml"

    def component_kubeconfig(self, component: str) -> Path:
        """Return the path of a component's kubeconfig."""
        return self.root / f"{component}.kubeconfig"

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return the path of a service account's kubeconfig."""
        return self.root / "service-accounts" / namespace / f"{name}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the path of a component's log."""
        return self.root / "logs" / f"{component}.log"


def rendered(file: str, values: Mapping[str, object]) -> str:
    """Return the text of a file of this directory with values for its placeholders."""
    return Template(Path(__file__).with_name(file).read_text(encoding="utf-8")).substitute(values)


@cache
def options() -> dict[str, dict[str, str]]:
    """Return the options of each program, with placeholders."""
    found: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("options.yaml").read_text())
    return found


def command_line(
    component: str, programs: Mapping[str, Path | str], layout: Layout, port: int, *, keeps_history: bool = False
) -> list[str]:
    """Return the command line of a program. Run it in the root of the layout, where etcd's sockets are."""
    values = {
        "host": HOST,
        "port": port,
        "admission": layout.admission,
        "certificates": layout.certificates,
        "kubeconfig": layout.component_kubeconfig(component),
        "stages": STAGES,
    }
    chosen = options()[component] | (KEEPS_HISTORY.get(component, {}) if keeps_history else {})
    arguments = (f"--{name}={Template(value).substitute(values)}" for name, value in chosen.items())
    return [str(programs[component]), *arguments]


def manifest(file: str, **values: object) -> dict[str, object]:
    """Return the object in a file of this directory, with values for its placeholders."""
    found: dict[str, object] = yaml.safe_load(rendered(file, values))
    return found


def node(name: str, kubelet_port: int = 0) -> dict[str, object]:
    """Return the manifest of a simulated node. Port 0: without a kubelet."""
    found = manifest("node.yaml", name=name, kubelet_port=kubelet_port)
    return found if kubelet_port else found | {"status": {}}


def webhooks(layout: Layout, kubelet_port: int) -> list[dict[str, object]]:
    """Return the manifests of the kubelet endpoint's webhooks, for ConfigMaps and Bindings; reads the authority."""
    authority = base64.b64encode((layout.certificates / "authority.crt").read_bytes()).decode()
    return list(yaml.safe_load_all(rendered("webhooks.yaml", {"port": kubelet_port, "authority": authority})))
