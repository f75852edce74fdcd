"""Whether a task reaches the run's own API server."""

from typing import Any

import pytest

from rolecall.runner.runs.planned.classification import reason_elsewhere

OWN = {
    "K8S_AUTH_HOST": "http://127.0.0.1:8888",
    "KUBECONFIG": "/run/tmp/kubeconfig-7",
    "K8S_AUTH_KUBECONFIG": "/run/kubeconfig-of-the-run",
}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"host": "http://127.0.0.1:8888/"},
        {"host": ""},
        {"kubeconfig": "/run/tmp/kubeconfig-7"},
        {"kubeconfig": "/run/tmp/kubeconfig-3"},
        {"kubeconfig": "/run/kubeconfig-of-the-run"},
        {"api_key": "other", "username": "me", "validate_certs": False},
        {"context": "other"},
    ],
)
def test_what_the_run_was_given_leads_to_its_own_api_server(arguments: dict[str, Any]) -> None:
    assert reason_elsewhere(arguments, {}, OWN) == ""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"host": "https://prod:6443"}, "host"),
        ({"kubeconfig": "/root/.kube/config"}, "kubeconfig"),
        ({"kubeconfig": "/run/tmp/other"}, "kubeconfig"),
        ({"kubeconfig": "/elsewhere/kubeconfig-7"}, "kubeconfig"),
        ({"kubeconfig": {"clusters": []}}, "kubeconfig"),
        ({"proxy": "http://proxy:3128"}, "proxy"),
    ],
)
def test_another_address_or_kubeconfig_leads_elsewhere(arguments: dict[str, Any], name: str) -> None:
    assert reason_elsewhere(arguments, {}, OWN) == f"its {name} leads to another API server"


@pytest.mark.parametrize(
    ("name", "value"),
    [("K8S_AUTH_HOST", "https://prod"), ("K8S_AUTH_HOST", ""), ("KUBECONFIG", ""), ("K8S_AUTH_KUBECONFIG", "/other")],
)
def test_an_environment_that_changes_the_way_leads_elsewhere(name: str, value: str) -> None:
    found = reason_elsewhere({}, {name: value}, OWN)
    assert found == f"its environment sets {name}, which leads to another API server"


def test_an_environment_that_repeats_the_run_s_own_leads_nowhere_else() -> None:
    assert reason_elsewhere({}, {**OWN, "HOME": "/other", "K8S_AUTH_VERIFY_SSL": "no"}, OWN) == ""


def test_without_an_api_server_of_its_own_every_address_leads_elsewhere() -> None:
    assert reason_elsewhere({"host": "http://127.0.0.1"}, {}, {})
