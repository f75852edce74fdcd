"""The credentials of a run for the proxy: a URL and a secret, as environment variables and as a kubeconfig.

Clients differ. The Python client and kubernetes.core send a token over plain HTTP. client-go (kubectl, helm) does not;
over plain HTTP it sends only credentials that are part of a URL. It also names its caches after the server's URL, which
should therefore be the same for all runs. So the kubeconfig uses the proxy's address twice: without the secret as the
server, and with it as the ``proxy-url``. The secret never appears in a ``repr``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_LOOPBACK: Final = ("127.0.0.1", "localhost")
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", *_NO_PROXY)
_CLUSTER: Final = "proxy-server"


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    """The credentials of one run, valid until the run is revoked.

    ``url`` is the same for all runs; ``namespace`` is the primary's namespace, empty for a cluster-scoped primary.
    """

    url: str
    secret: str = field(repr=False)
    namespace: str = ""

    def environment(self, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables to add to a play's environment; ``inherited`` is the environment without them.

        ``NO_PROXY`` is among them only if the inherited environment configures a proxy: roles copy these variables into
        the objects that they create.
        """
        variables = {"K8S_AUTH_HOST": self.url, "K8S_AUTH_API_KEY": self.secret}
        if not any(inherited.get(name) for name in _PROXY):
            return variables
        return variables | {name: _with_loopback(_no_proxy(name, inherited)) for name in _NO_PROXY}

    def kubeconfig(self) -> str:
        """Return the content of a kubeconfig file (JSON, which is YAML). It contains the secret: restrict access."""
        context, user = f"{self.namespace}/{_CLUSTER}", f"admin/{_CLUSTER}"
        scheme, _, address = self.url.partition("://")
        # client-go's WebSocket dialer sends the user name only if there is a password.
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


def _no_proxy(name: str, inherited: Mapping[str, str]) -> str:
    """Return the value of a variable, or of its other form: a client takes the first of the two that is set."""
    return next(filter(None, (inherited.get(each, "") for each in (name, *_NO_PROXY))), "")


def _with_loopback(excluded: str) -> str:
    """Return a ``NO_PROXY`` list that includes loopback."""
    hosts = [host.strip() for host in excluded.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
