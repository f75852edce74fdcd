"""The components of a control plane, their command lines, and the objects that it starts with.

Only the API server and the kubelet endpoint listen on a port each, on loopback; the latter accepts no client except the
API server. etcd listens on sockets in the state directory, which only its owner can enter, and the other components do
not listen. So other users of the machine cannot bypass the API server. All functions are pure,
except ``webhooks``; ``rolecall.workbench.controlplane.cluster`` runs the command lines.
"""

import base64
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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

SERVICE_ADDRESSES = "10.96.0.0/16"
POD_ADDRESSES = "10.244.0.1/16"
NODE_LEASE_SECONDS = 40
STAGES = Path(__file__).with_name("stages.yaml")
PROVISIONER = "simulated.rolecall.dev"
DECLARED_FEATURE = "ExtendWebSocketsToKubelet"
"""Lets an API server pass WebSockets through to the kubelet, instead of translating them to SPDY."""

RESPONSES_LABEL = "rolecall.dev/pod-responses"
"""The label of ConfigMaps with responses of simulated pods."""

ADMISSION = Path(__file__).with_name("admission.yaml")
WEBHOOKS = Path(__file__).with_name("webhooks.yaml")
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


def command_line(component: str, programs: Mapping[str, Path], layout: Layout, port: int) -> list[str]:
    """Return the command line of a program. Run it in the root of the layout, where etcd's sockets are."""
    options = _OPTIONS[component](layout, port)
    return [str(programs[component]), *(f"--{name}={value}" for name, value in options.items())]


def kubelet_command_line(port: int, listener: int) -> list[str]:
    """Return the command line of the kubelet endpoint, for an API server's port and an inherited file descriptor."""
    return [sys.executable, "-P", str(Path(__file__).with_name(f"{KUBELET}.py")), str(port), str(listener)]


def _etcd(_layout: Layout, _port: int) -> dict[str, str]:
    return {
        "name": "rolecall",
        "data-dir": "etcd",
        "listen-client-urls": f"unix://{ETCD_SOCKET}",
        "advertise-client-urls": f"unix://{ETCD_SOCKET}",
        "listen-peer-urls": "unix://etcd-peer.socket",
        "initial-advertise-peer-urls": "unix://etcd-peer.socket",
        "initial-cluster": "rolecall=unix://etcd-peer.socket",
        "unsafe-no-fsync": "true",  # the data is worth no more than the machine's uptime
        "snapshot-count": "10000",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "30m",
        "quota-backend-bytes": str(4 * 1024**3),
        "log-level": "warn",
    }


def _api_server(layout: Layout, port: int) -> dict[str, str]:
    certificates = layout.certificates
    return {
        "etcd-servers": f"unix://{ETCD_SOCKET}",
        "bind-address": HOST,
        "secure-port": str(port),
        "advertise-address": HOST,  # otherwise it looks for a default route, and offline there is none
        "endpoint-reconciler-type": "none",  # a Service cannot point at loopback
        "service-cluster-ip-range": SERVICE_ADDRESSES,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction,OwnerReferencesPermissionEnforcement",
        "admission-control-config-file": str(layout.admission),
        "allow-privileged": "true",
        "client-ca-file": str(certificates / "authority.crt"),
        "tls-cert-file": str(certificates / "server.crt"),
        "tls-private-key-file": str(certificates / "server.key"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(certificates / "service-accounts.pub"),
        "service-account-signing-key-file": str(certificates / "service-accounts.key"),
        "kubelet-certificate-authority": str(certificates / "authority.crt"),
        "kubelet-client-certificate": str(certificates / f"{KUBELET_CLIENT}.crt"),
        "kubelet-client-key": str(certificates / f"{KUBELET_CLIENT}.key"),
        "kubelet-preferred-address-types": "InternalIP",  # the host names of simulated nodes cannot be resolved
        "profiling": "false",
    }


def _controller_manager(layout: Layout, _port: int) -> dict[str, str]:
    certificates = layout.certificates
    return {
        **_client(layout, CONTROLLER_MANAGER),
        "service-account-private-key-file": str(certificates / "service-accounts.key"),
        "root-ca-file": str(certificates / "authority.crt"),
        "cluster-signing-cert-file": str(certificates / "authority.crt"),
        "cluster-signing-key-file": str(certificates / "authority.key"),
        "use-service-account-credentials": "true",
    }


def _scheduler(layout: Layout, _port: int) -> dict[str, str]:
    return _client(layout, SCHEDULER)


def _client(layout: Layout, component: str) -> dict[str, str]:
    kubeconfig = str(layout.component_kubeconfig(component))
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "secure-port": "0",
        "leader-elect": "false",  # there is one of each
        "kube-api-qps": "1000",
        "kube-api-burst": "2000",
        "profiling": "false",
    }


def _kwok(layout: Layout, _port: int) -> dict[str, str]:
    return {
        "kubeconfig": str(layout.component_kubeconfig(KWOK)),
        "config": str(STAGES),
        "manage-all-nodes": "true",
        "node-lease-duration-seconds": str(NODE_LEASE_SECONDS),
        "node-ip": HOST,
        "cidr": POD_ADDRESSES,
    }


_OPTIONS = {
    ETCD: _etcd,
    API_SERVER: _api_server,
    CONTROLLER_MANAGER: _controller_manager,
    SCHEDULER: _scheduler,
    KWOK: _kwok,
}


def node(name: str, kubelet_port: int = 0) -> dict[str, object]:
    """Return the manifest of a simulated node; kwok reports the rest of its status. Port 0: without a kubelet."""
    kubelet = {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "declaredFeatures": [DECLARED_FEATURE],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "simulated",
            },
        },
        "status": kubelet if kubelet_port else {},
    }


def webhooks(layout: Layout, kubelet_port: int) -> list[dict[str, object]]:
    """Return the manifests of the kubelet endpoint's webhooks, for ConfigMaps and Bindings; reads the authority."""
    authority = base64.b64encode((layout.certificates / "authority.crt").read_bytes()).decode()
    text = WEBHOOKS.read_text().replace("PORT", str(kubelet_port)).replace("AUTHORITY", authority)
    return list(yaml.safe_load_all(text))


def storage_class() -> dict[str, object]:
    """Return the manifest of the default StorageClass; kwok provisions the volumes of claims."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def probe_pod(name: str, namespace: str) -> dict[str, object]:
    """Return the manifest of the probe pod; if it runs, all components work together."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [{"name": "probe", "image": "probe"}],
            "terminationGracePeriodSeconds": 0,
        },
    }
