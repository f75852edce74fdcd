"""Kubeconfig files: one per user of a control plane, complete in itself.

Certificates, keys and tokens are embedded, so a file can be copied or passed on alone; it is readable by its owner
only and appears whole or not at all. The users themselves come from rolecall.controlplane.certificates and, for
service accounts, from the API server.
"""

import base64
from typing import Any

import yaml

from rolecall.controlplane.certificates import KeyPair


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def certificate_user(pair: KeyPair) -> dict[str, Any]:
    """Describe a user who shows a certificate."""
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def token_user(token: str) -> dict[str, Any]:
    """Describe a user who shows a bearer token."""
    return {"token": token}


def kubeconfig(cluster: str, server: str, authority: bytes, user: dict[str, Any], namespace: str = "default") -> bytes:
    """Build the file from the API server's URL, the authority's certificate (PEM), the one user and the namespace."""
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
