"""The certificates and kubeconfig files of one control plane.

Every component has its own user, with the permissions that Kubernetes grants to that user. The administrator is in the
group ``system:masters``, and so is kwok, which simulates the kubelets of all nodes. Service accounts get tokens from
the API server. All files are in the state directory, readable by its owner only, and are removed with it.
"""

import http
from pathlib import Path

from rolecall.system.private_files import write_private
from rolecall.workbench.controlplane import components
from rolecall.workbench.controlplane.api_server import ApiServer
from rolecall.workbench.controlplane.certificates import CertificateAuthority, KeyPair, new_signing_key
from rolecall.workbench.controlplane.components import HOST, Layout
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.kubeconfig import certificate_user, kubeconfig, token_user

ADMIN = "admin"
ADMIN_GROUP = "system:masters"
FIRST_SERVICE_ADDRESS = "10.96.0.1"
TOKEN_LIFETIME_SECONDS = 365 * 24 * 3600


class Credentials:
    """The certificates and kubeconfig files of the control plane of one name."""

    def __init__(self, cluster: str, layout: Layout) -> None:
        self._cluster = cluster
        self._layout = layout

    def create(self) -> None:
        """Create an authority and all certificates; the directories must exist."""
        authority = CertificateAuthority.create(self._cluster)
        self._write_pair("authority", authority.own)
        self._write_pair("server", authority.server(HOST, FIRST_SERVICE_ADDRESS))
        self._write_pair(components.KUBELET, authority.server(HOST))
        self._write_pair(components.KUBELET_CLIENT, authority.client(components.KUBELET_CLIENT))
        self._write_pair(ADMIN, authority.client(ADMIN, ADMIN_GROUP))
        for component in (components.CONTROLLER_MANAGER, components.SCHEDULER):
            self._write_pair(component, authority.client(f"system:{component}"))
        self._write_pair(components.KWOK, authority.client("system:kwok", ADMIN_GROUP))
        private, public = new_signing_key()
        write_private(self._layout.certificates / "service-accounts.key", private)
        write_private(self._layout.certificates / "service-accounts.pub", public)

    def write_kubeconfigs(self, port: int) -> None:
        """Write the kubeconfig files of the administrator and of the components for an API server on this port."""
        paths = {ADMIN: self._layout.kubeconfig}
        for component in (components.CONTROLLER_MANAGER, components.SCHEDULER, components.KWOK):
            paths[component] = self._layout.component_kubeconfig(component)
        for user, path in paths.items():
            self._write_kubeconfig(
                path, port, certificate_user(KeyPair(self._read(f"{user}.crt"), self._read(f"{user}.key")))
            )

    def write_service_account_kubeconfig(self, server: ApiServer, port: int, account: tuple[str, str]) -> Path:
        """Write a kubeconfig with a new token of the account (namespace, name). Raise ControlPlaneError on failure."""
        namespace, name = account
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFETIME_SECONDS},
        }
        response = server.request("POST", path, body)
        if response.status == http.HTTPStatus.NOT_FOUND:
            raise ControlPlaneError(f"service account {name!r} not found in namespace {namespace!r}")
        if not response.is_success:
            raise ControlPlaneError(f"cannot create a token for service account {namespace}/{name}: {response.message}")
        target = self._layout.service_account_kubeconfig(namespace, name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_kubeconfig(target, port, token_user(response.content["status"]["token"]), namespace)
        return target

    def _write_kubeconfig(self, path: Path, port: int, user: dict[str, str], namespace: str = "default") -> None:
        server = f"https://{HOST}:{port}"
        content = kubeconfig(f"rolecall-{self._cluster}", server, self._read("authority.crt"), user, namespace)
        write_private(path, content)

    def _write_pair(self, name: str, pair: KeyPair) -> None:
        write_private(self._layout.certificates / f"{name}.crt", pair.certificate)
        write_private(self._layout.certificates / f"{name}.key", pair.key)

    def _read(self, file: str) -> bytes:
        return (self._layout.certificates / file).read_bytes()
