"""The certificate authority of one control plane and the certificates that it signs.

Every control plane has its own authority, so a kubeconfig is valid for one control plane only. Keys are elliptic curve
keys (P-256), which take milliseconds to create; they live as long as the state directory. The API server takes the user
from the common name of a certificate, and the group from the organization. ``rolecall.workbench.controlplane.kubeconfig`` embeds
the certificates.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=3650)
CLOCK_TOLERANCE = dt.timedelta(minutes=5)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


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


def new_signing_key() -> tuple[bytes, bytes]:
    """Return a new key for signing service account tokens: the private and the public part as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private_key_pem(key), public


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

    def __init__(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._name = name
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, cluster: str) -> Self:
        """Return a new authority that is named after the cluster."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"rolecall {cluster}")
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
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(name, key, certificate)

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
