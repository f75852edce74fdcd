"""What a run is given to reach the proxy: a URL, a secret, and the forms in which clients want them.

Clients differ. The Python client and kubernetes.core send a token over plain HTTP; client-go (kubectl, helm) sends
nothing there but what stands in a URL. It names its caches after the server's URL, so the secret stands in the URL of
an HTTP proxy instead: the same address, and the same for every run but for the secret. Nothing here shows up in a
``repr``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_LOOPBACK: Final = ("127.0.0.1", "localhost")
_CLUSTER: Final = "proxy-server"


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    """How one run reaches the API server through the proxy, valid until the run is revoked.

    ``url`` is the same for all runs; ``namespace`` is the primary's, empty for a cluster-scoped one.
    """

    url: str
    secret: str = field(repr=False)
    namespace: str = ""

    def environment(self, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables to add to a play's environment; ``inherited`` is the one that it will be added to."""
        variables = {"K8S_AUTH_HOST": self.url, "K8S_AUTH_API_KEY": self.secret}
        return variables | {name: _with_loopback(inherited.get(name, "")) for name in ("NO_PROXY", "no_proxy")}

    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig file (JSON, which is YAML); whoever writes it keeps others from reading."""
        context, user = f"{self.namespace}/{_CLUSTER}", f"admin/{_CLUSTER}"
        scheme, _, address = self.url.partition("://")
        # client-go's WebSocket dialer sends user information only if it has a password.
        proxy_url = f"{scheme}://{self.secret}:unused@{address}"
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _CLUSTER, "cluster": {"server": self.url, "proxy-url": proxy_url}}],
            "users": [{"name": user, "user": {"token": self.secret}}],
            "contexts": [{"name": context, "context": {"cluster": _CLUSTER, "user": user}}],
            "current-context": context,
            "preferences": {},
        }
        return json.dumps(content)


def _with_loopback(excluded: str) -> str:
    """Return a list of hosts that are reached without a proxy, loopback among them."""
    hosts = [host.strip() for host in excluded.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
