"""A way to the API server as the Operator SDK's collection goes: the environment's host and token, else kubeconfig."""

import os

import kubernetes
from ansible.module_utils._text import to_native
from ansible.module_utils.six import iteritems
from kubernetes.dynamic import DynamicClient

VARIABLES = {"host": "K8S_AUTH_HOST", "api_key": "K8S_AUTH_API_KEY"}


def connected(module):
    given = {name: os.getenv(variable) for name, variable in iteritems(VARIABLES) if os.getenv(variable)}
    try:
        if set(given) != set(VARIABLES):
            kubernetes.config.load_kube_config(os.getenv("K8S_AUTH_KUBECONFIG"))
        configuration = kubernetes.client.Configuration().get_default_copy()
        if "api_key" in given:
            given["api_key"] = {"authorization": f"Bearer {given['api_key']}"}
        for name, value in iteritems(given):
            setattr(configuration, name, value)
        return DynamicClient(kubernetes.client.ApiClient(configuration))
    except Exception as error:
        module.fail_json(msg="No client", error=to_native(error))
