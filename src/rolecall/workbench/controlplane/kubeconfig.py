"""Writes kubeconfig files, one for each user of a control plane.

Certificates, keys and tokens are embedded, so you can copy a file by itself. It is readable by its owner only and is
written atomically. Certificates come from ``rolecall.workbench.controlplane.certificates``, tokens from the API server.
"""

import base64
from typing import Any

import yaml

from rolecall.workbench.controlplane.certificates import KeyPair


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def certificate_user(pair: KeyPair) -> dict[str, Any]:
    """Return the kubeconfig entry of a user with a certificate."""
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def token_user(token: str) -> dict[str, Any]:
    """Return the kubeconfig entry of a user with a bearer token."""
    return {"token": token}


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
