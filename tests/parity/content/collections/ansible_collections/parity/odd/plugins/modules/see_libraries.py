"""Says what libraries that look at the environment have found there, some of them when they are imported."""

import locale
import ssl
import tempfile
import time
import urllib.request
from pathlib import Path

import requests
from ansible.module_utils.basic import AnsibleModule, env_fallback
from kubernetes import client, config

HOST = {"host": {"type": "str", "fallback": (env_fallback, ["K8S_AUTH_HOST"])}}


def main() -> None:
    module = AnsibleModule(HOST)
    session = requests.Session().merge_environment_settings("https://api.test", {}, None, None, None)
    module.exit_json(
        client_proxy=client.Configuration().proxy,
        client_no_proxy=client.Configuration().no_proxy,
        kubeconfig=config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION,
        proxies=urllib.request.getproxies(),
        session_proxies=dict(session["proxies"]),
        session_authorities=session["verify"],
        authorities=ssl.get_default_verify_paths().cafile,
        zone=[time.tzname, time.strftime("%H", time.localtime(0))],
        language=[locale.getlocale(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL)],
        temporary=tempfile.gettempdir(),
        home=str(Path.home()),
        host=module.params["host"],
    )


if __name__ == "__main__":
    main()
