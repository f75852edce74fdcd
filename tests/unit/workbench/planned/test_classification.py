"""The category of an action in a planned run, and whether a task reaches the run's own API server."""

from typing import Any

import pytest

from rolecall.workbench.planned.classification import (
    ActionCategory,
    TaskFacts,
    Verdict,
    classify,
    full_name,
    is_known,
    reason_elsewhere,
)

ANSIBLE = "/lib/ansible"
OWN = {"ROLECALL_PROXY_URL": "http://127.0.0.1:8888", "KUBECONFIG": "/tmp/run/kubeconfig-1"}  # noqa: S108 - no file is made


def verdict(name: str, **arguments: Any) -> Verdict:
    return classify(TaskFacts(name, arguments), OWN)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/lib/ansible/modules/copy.py", "ansible.builtin.copy"),
        ("/lib/ansible/plugins/action/copy.py", "ansible.builtin.copy"),
        ("/x/ansible_collections/kubernetes/core/plugins/modules/k8s.py", "kubernetes.core.k8s"),
        ("/x/ansible_collections/a/b/plugins/modules/deep/one.py", "a.b.deep.one"),
        ("/roles/foo/library/copy.py", ""),
        ("/lib/ansible-tricks/modules/copy.py", ""),
        ("/root/.ansible/plugins/modules/k8s.py", ""),
        ("/x/ansible_collections/kubernetes/core/k8s.py", ""),
    ],
)
def test_full_name_comes_from_the_file_and_is_empty_for_a_role(path: str, name: str) -> None:
    assert full_name(path, ANSIBLE) == name


@pytest.mark.parametrize("name", ["set_fact", "debug", "assert", "fail", "set_stats", "add_host", "group_by", "pause"])
def test_controller_actions_run_for_any_host_and_user(name: str) -> None:
    facts = TaskFacts(f"ansible.builtin.{name}", is_local=False, becomes=True)
    assert classify(facts, OWN) == Verdict(ActionCategory.COMPUTES)


@pytest.mark.parametrize("name", ["ansible.builtin.setup", "ansible.builtin.copy", "kubernetes.core.k8s"])
def test_action_that_needs_a_host_runs_only_on_this_one_as_this_user(name: str) -> None:
    assert classify(TaskFacts(name), OWN).category is not ActionCategory.WITHHELD
    assert classify(TaskFacts(name, is_local=False), OWN) == Verdict(ActionCategory.WITHHELD, "runs on another host")
    assert classify(TaskFacts(name, becomes=True), OWN) == Verdict(ActionCategory.WITHHELD, "runs as another user")


LOCAL_CHART = {"chart_ref": "/charts/one"}


@pytest.mark.parametrize(
    ("name", "arguments", "category"),
    [
        ("kubernetes.core.k8s", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("kubernetes.core.k8s_info", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("community.okd.k8s", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("rolecall.util.k8s_status", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("operator_sdk.util.k8s_status", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("operator_sdk.util.k8s_event", {"kind": "Pod"}, ActionCategory.KUBERNETES),
        ("operator_sdk.util.requeue_after", {"time": "1s"}, ActionCategory.COMPUTES),
        ("kubernetes.core.helm", LOCAL_CHART, ActionCategory.KUBERNETES),
        ("kubernetes.core.helm", {"chart_ref": "./one"}, ActionCategory.KUBERNETES),
        ("kubernetes.core.helm", {"state": "absent", "chart_ref": "bitnami/one"}, ActionCategory.KUBERNETES),
        ("ansible.builtin.template", {"src": "t.j2", "dest": "/etc/x"}, ActionCategory.FILES),
        ("ansible.builtin.wait_for", {"timeout": 30}, ActionCategory.FILES),
    ],
)
def test_known_action_runs(name: str, arguments: dict[str, Any], category: ActionCategory) -> None:
    assert verdict(name, **arguments) == Verdict(category)


OTHER_HOST, PROGRAM, UNKNOWN = "reaches another host", "runs a program", "its effect outside Kubernetes is not known"
REMOTE_CHART = "gets a chart from another host"
NO_PATH = f"{REMOTE_CHART}, unless its path begins with /, ./ or ../"


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("ansible.builtin.command", {}, PROGRAM),
        ("ansible.builtin.shell", {}, PROGRAM),
        ("ansible.builtin.uri", {}, OTHER_HOST),
        ("ansible.builtin.get_url", {}, OTHER_HOST),
        ("kubernetes.core.helm_repository", {}, OTHER_HOST),
        ("ansible.builtin.service", {}, UNKNOWN),
        ("community.postgresql.postgresql_db", {}, UNKNOWN),
        ("", {}, "a module or action plugin of the role"),
        ("ansible.builtin.copy", {"src": "https://example.com/x", "dest": "/x"}, OTHER_HOST),
        ("kubernetes.core.k8s", {"src": "https://example.com/x.yaml"}, OTHER_HOST),
        ("ansible.builtin.wait_for", {"port": 80}, "reaches a port"),
        ("ansible.builtin.wait_for", {"host": "web1", "timeout": 3}, "reaches a port"),
        ("community.crypto.x509_certificate", {"provider": "acme"}, OTHER_HOST),
        ("ansible.builtin.setup", {"fact_path": "/bin/other"}, PROGRAM),
        ("kubernetes.core.helm", {"binary_path": "/bin/other"}, PROGRAM),
        ("kubernetes.core.helm", {"post_renderer": "/bin/other"}, PROGRAM),
        ("kubernetes.core.helm", {"chart_ref": "bitnami/one"}, NO_PATH),
        ("kubernetes.core.helm", {"chart_ref": "https://example.com/one.tgz"}, NO_PATH),
        ("kubernetes.core.helm", {"chart_ref": "oci://example.com/one"}, NO_PATH),
        ("kubernetes.core.helm", {**LOCAL_CHART, "dependency_update": True}, REMOTE_CHART),
        ("kubernetes.core.helm", {"chart_ref": "one", "chart_repo_url": "https://example.com"}, REMOTE_CHART),
    ],
)
def test_other_action_is_withheld_with_a_reason(name: str, arguments: dict[str, Any], reason: str) -> None:
    assert verdict(name, **arguments) == Verdict(ActionCategory.WITHHELD, reason)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("k8s_exec", {}, "runs a program in a pod"),
        ("k8s_cp", {}, "copies from or to a pod"),
        ("k8s_log", {}, "pods of a plan write no logs"),
        ("k8s", {"host": "https://prod:6443"}, "its host leads to another API server"),
    ],
)
def test_action_on_a_real_pod_or_another_api_server_is_withheld_even_with_commands(
    name: str, arguments: dict[str, Any], reason: str
) -> None:
    expected = Verdict(ActionCategory.WITHHELD, reason, is_final=True)
    assert verdict(f"kubernetes.core.{name}", **arguments) == expected


def test_module_of_a_role_or_program_is_not_part_of_a_known_action() -> None:
    assert is_known("ansible.builtin.stat")
    assert not is_known("ansible.builtin.command")
    assert not is_known("")


OWN_CLUSTER_ACCESS = {
    "ROLECALL_PROXY_URL": "http://127.0.0.1:8888",
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
def test_given_access_reaches_the_runs_own_api_server(arguments: dict[str, Any]) -> None:
    assert reason_elsewhere(arguments, {}, OWN_CLUSTER_ACCESS) == ""


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
def test_other_address_or_kubeconfig_leads_elsewhere(arguments: dict[str, Any], name: str) -> None:
    assert reason_elsewhere(arguments, {}, OWN_CLUSTER_ACCESS) == f"its {name} leads to another API server"


@pytest.mark.parametrize(
    ("name", "value"),
    [("K8S_AUTH_HOST", "https://prod"), ("K8S_AUTH_HOST", ""), ("KUBECONFIG", ""), ("K8S_AUTH_KUBECONFIG", "/other")],
)
def test_changed_environment_leads_elsewhere(name: str, value: str) -> None:
    found = reason_elsewhere({}, {name: value}, OWN_CLUSTER_ACCESS)
    assert found == f"its environment sets {name}, which leads to another API server"


def test_environment_that_repeats_the_runs_own_reaches_its_api_server() -> None:
    environment = {**OWN_CLUSTER_ACCESS, "HOME": "/other", "K8S_AUTH_VERIFY_SSL": "no"}
    assert reason_elsewhere({}, environment, OWN_CLUSTER_ACCESS) == ""


def test_every_address_leads_elsewhere_without_an_own_api_server() -> None:
    assert reason_elsewhere({"host": "http://127.0.0.1"}, {}, {})
