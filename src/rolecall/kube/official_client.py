"""The parts of the official client that load configurations, without its synchronous client.

The package ``kubernetes`` imports its synchronous client, requests, and an OAuth library together with the asynchronous
client. They take 8 MiB in the operator, and half a second at its start. The asynchronous ``ApiClient`` takes another
9 MiB, because it imports pydantic; only functions that aren't used here create one.
"""

from rolecall.system.imports import submodules_only

with submodules_only("kubernetes"), submodules_only("kubernetes.aio"):
    from kubernetes.aio import client
    from kubernetes.aio.client import Configuration

    vars(client)["ApiClient"] = None  # the package imports it when it is first used; kube_config only names it
    from kubernetes.aio.client.rest import RESTClientObject
    from kubernetes.aio.config import ConfigException, incluster_config
    from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    del vars(client)["ApiClient"]

__all__ = [
    "ConfigException",
    "Configuration",
    "KubeConfigLoader",
    "KubeConfigMerger",
    "RESTClientObject",
    "incluster_config",
]
