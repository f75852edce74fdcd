"""The certificate authority, certificates, and kubeconfig files of one control plane.

Every control plane has its own authority, so a kubeconfig is valid for one control plane only. Keys are elliptic curve
keys (P-256), which take milliseconds to create; they live as long as the state directory. The API server takes the user
from the common name of a certificate, and the group from the organization.

Every component has its own user, with the permissions that Kubernetes grants to that user. The administrator is in the
group ``system:masters``, and so is kwok, which simulates the kubelets of all nodes. Service accounts get tokens from
the API server. A kubeconfig embeds its certificates, keys, and tokens, so you can copy it by itself. All files are
written atomically, are readable by their owner only, and are removed with the state directory.
"""

import base64
import datetime as dt
import http
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rolecall.kube.discovery import path_segment
from rolecall.kube.errors import InvalidNameError
from rolecall.system.files import write_private
from rolecall.workbench.controlplane import components
from rolecall.workbench.controlplane.api_client import ApiClient
from rolecall.workbench.controlplane.components import HOST, Layout
from rolecall.workbench.controlplane.errors import ControlPlaneError

LIFETIME = dt.timedelta(days=3650)
CLOCK_TOLERANCE = dt.timedelta(minutes=5)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADMIN = "admin"
ADMIN_GROUP = "system:masters"
FIRST_SERVICE_ADDRESS = "10.96.0.1"
TOKEN_LIFETIME_SECONDS = 365 * 24 * 3600


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as unencrypted PEM (PKCS 8)."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(user: str, group: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


class CertificateAuthority:
    """The certificate authority of one control plane."""

    def __init__(self, cluster: str) -> None:
        """Create the authority, named after the cluster."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"rolecall {cluster}")
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def own(self) -> KeyPair:
        """The authority's own certificate and key."""
        return KeyPair(self._certificate.public_bytes(serialization.Encoding.PEM), private_key_pem(self._key))

    def client(self, user: str, group: str | None = None) -> KeyPair:
        """Return a signed client certificate for this user and group."""
        return self._sign(_name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def server(self, *addresses: str) -> KeyPair:
        """Return a signed server certificate for these addresses and for the in-cluster names of the API server."""
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        alternatives = x509.SubjectAlternativeName(names)
        return self._sign(_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def _sign(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, alternatives: x509.SubjectAlternativeName | None
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        authority_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._name, key)
            .add_extension(authority_identifier, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private_key_pem(key))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def certificate_user(pair: KeyPair) -> dict[str, Any]:
    """Return the kubeconfig entry of a user with a certificate."""
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def kubeconfig(cluster: str, server: str, authority: bytes, user: dict[str, Any], namespace: str = "default") -> bytes:
    """Return the file for the API server's URL, the authority's certificate (PEM), a user and a namespace."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "user", "namespace": namespace}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


class Credentials:
    """The certificates and kubeconfig files of the control plane of one name."""

    def __init__(self, cluster: str, layout: Layout) -> None:
        self._cluster = cluster
        self._layout = layout

    def create(self) -> None:
        """Create an authority, all certificates, and what refers to them; the directories must exist."""
        authority = CertificateAuthority(self._cluster)
        self._write_pair("authority", authority.own)
        self._write_pair("server", authority.server(HOST, FIRST_SERVICE_ADDRESS))
        self._write_pair(components.KUBELET, authority.server(HOST))
        self._write_pair(components.KUBELET_CLIENT, authority.client(components.KUBELET_CLIENT))
        self._write_pair(ADMIN, authority.client(ADMIN, ADMIN_GROUP))
        for component in (components.CONTROLLER_MANAGER, components.SCHEDULER):
            self._write_pair(component, authority.client(f"system:{component}"))
        self._write_pair(components.KWOK, authority.client("system:kwok", ADMIN_GROUP))
        signing_key = ec.generate_private_key(ec.SECP256R1())
        public = signing_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_private(self._layout.certificates / "service-accounts.key", private_key_pem(signing_key))
        write_private(self._layout.certificates / "service-accounts.pub", public)
        kubeconfig_path = json.dumps(str(self._layout.component_kubeconfig(components.KUBELET_CLIENT)))
        admission = components.rendered("admission.yaml", {"kubeconfig": kubeconfig_path})
        write_private(self._layout.admission, admission.encode())

    def write_kubeconfigs(self, port: int) -> None:
        """Write the kubeconfig files of the administrator and of the components for an API server on this port."""
        paths = {ADMIN: self._layout.kubeconfig}
        for component in (*components.CONTROLLERS, components.KUBELET_CLIENT):
            paths[component] = self._layout.component_kubeconfig(component)
        for user, path in paths.items():
            self._write_kubeconfig(
                path, port, certificate_user(KeyPair(self._read(f"{user}.crt"), self._read(f"{user}.key")))
            )

    def write_service_account_kubeconfig(self, server: ApiClient, port: int, account: tuple[str, str]) -> Path:
        """Write a kubeconfig with a new token of the account (namespace, name). Raise ControlPlaneError on failure."""
        namespace, name = account
        try:
            path = f"/api/v1/namespaces/{path_segment(namespace)}/serviceaccounts/{path_segment(name)}/token"
        except InvalidNameError as error:
            raise ControlPlaneError(f"service account {namespace}/{name}: {error}") from error
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
        self._write_kubeconfig(target, port, {"token": response.content["status"]["token"]}, namespace)
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
