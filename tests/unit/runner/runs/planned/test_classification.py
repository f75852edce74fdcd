"""What a planned run does with an action, by its full name and its arguments.

Whether a task reaches the run's own API server.
"""

from typing import Any

import pytest

from rolecall.runner.runs.planned.classification import (
    Kind,
    TaskFacts,
    Verdict,
    classify,
    full_name,
    is_known,
    reason_elsewhere,
)

ANSIBLE = "/lib/ansible"
OWN = {"K8S_AUTH_HOST": "http://127.0.0.1:8888", "KUBECONFIG": "/tmp/run/kubeconfig-1"}  # noqa: S108 - no file is made


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
def test_the_full_name_is_that_of_the_file_and_what_a_role_brings_has_none(path: str, name: str) -> None:
    assert full_name(path, ANSIBLE) == name


@pytest.mark.parametrize("name", ["set_fact", "debug", "assert", "fail", "set_stats", "add_host", "group_by", "pause"])
def test_what_computes_on_the_controller_runs_for_any_host_and_user(name: str) -> None:
    facts = TaskFacts(f"ansible.builtin.{name}", is_local=False, becomes=True)
    assert classify(facts, OWN) == Verdict(Kind.COMPUTES)


@pytest.mark.parametrize("name", ["ansible.builtin.setup", "ansible.builtin.copy", "kubernetes.core.k8s"])
def test_what_needs_a_host_runs_only_on_this_one_as_this_user(name: str) -> None:
    assert classify(TaskFacts(name), OWN).kind is not Kind.WITHHELD
    assert classify(TaskFacts(name, is_local=False), OWN) == Verdict(Kind.WITHHELD, "runs on another host")
    assert classify(TaskFacts(name, becomes=True), OWN) == Verdict(Kind.WITHHELD, "runs as another user")


@pytest.mark.parametrize(
    "name", ["kubernetes.core.k8s", "kubernetes.core.k8s_info", "community.okd.k8s", "rolecall.util.k8s_status"]
)
def test_kubernetes_modules_run(name: str) -> None:
    assert verdict(name, kind="Pod") == Verdict(Kind.KUBERNETES)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ansible.builtin.command", "runs a program"),
        ("ansible.builtin.shell", "runs a program"),
        ("ansible.builtin.uri", "reaches another host"),
        ("ansible.builtin.get_url", "reaches another host"),
        ("kubernetes.core.helm_repository", "reaches another host"),
        ("ansible.builtin.service", "its effect outside of Kubernetes is not known"),
        ("community.postgresql.postgresql_db", "its effect outside of Kubernetes is not known"),
        ("", "a module or action plugin of the role"),
    ],
)
def test_everything_else_is_withheld_for_a_reason(name: str, reason: str) -> None:
    assert verdict(name) == Verdict(Kind.WITHHELD, reason)


@pytest.mark.parametrize("name", ["k8s_exec", "k8s_cp", "k8s_log"])
def test_what_needs_a_real_pod_does_not_run_with_commands_either(name: str) -> None:
    assert verdict(f"kubernetes.core.{name}").is_final


def test_a_task_for_another_api_server_does_not_run_with_commands_either() -> None:
    found = verdict("kubernetes.core.k8s", host="https://prod:6443")
    assert found == Verdict(Kind.WITHHELD, "its host leads to another API server", is_final=True)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"chart_ref": "/charts/one"}, Kind.KUBERNETES),
        ({"chart_ref": "./one"}, Kind.KUBERNETES),
        ({"state": "absent", "chart_ref": "bitnami/one"}, Kind.KUBERNETES),
        ({"chart_ref": "bitnami/one"}, Kind.WITHHELD),
        ({"chart_ref": "https://example.com/one.tgz"}, Kind.WITHHELD),
        ({"chart_ref": "oci://example.com/one"}, Kind.WITHHELD),
        ({"chart_ref": "/charts/one", "dependency_update": True}, Kind.WITHHELD),
        ({"chart_ref": "one", "chart_repo_url": "https://example.com"}, Kind.WITHHELD),
    ],
)
def test_helm_runs_with_a_local_chart(arguments: dict[str, Any], kind: Kind) -> None:
    assert verdict("kubernetes.core.helm", **arguments).kind is kind


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ansible.builtin.copy", {"src": "https://example.com/x", "dest": "/x"}),
        ("kubernetes.core.k8s", {"src": "https://example.com/x.yaml"}),
        ("ansible.builtin.wait_for", {"port": 80}),
        ("ansible.builtin.wait_for", {"host": "web1", "timeout": 3}),
        ("community.crypto.x509_certificate", {"provider": "acme"}),
    ],
)
def test_a_known_module_that_reaches_other_hosts_is_withheld(name: str, arguments: dict[str, Any]) -> None:
    assert verdict(name, **arguments).kind is Kind.WITHHELD


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("ansible.builtin.setup", "fact_path"),
        ("kubernetes.core.helm", "binary_path"),
        ("kubernetes.core.helm", "post_renderer"),
    ],
)
def test_a_known_action_that_is_given_a_program_is_withheld(name: str, argument: str) -> None:
    assert verdict(name, **{argument: "/bin/other"}) == Verdict(Kind.WITHHELD, "runs a program")


def test_modules_for_files_work_in_the_folder() -> None:
    assert verdict("ansible.builtin.template", src="t.j2", dest="/etc/x") == Verdict(Kind.FILES)
    assert verdict("ansible.builtin.wait_for", timeout=30) == Verdict(Kind.FILES)


def test_a_module_of_a_role_and_a_program_are_no_part_of_a_known_action() -> None:
    assert is_known("ansible.builtin.stat")
    assert not is_known("ansible.builtin.command")
    assert not is_known("")


OWN_CLUSTER_ACCESS = {
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
def test_another_address_or_kubeconfig_leads_elsewhere(arguments: dict[str, Any], name: str) -> None:
    assert reason_elsewhere(arguments, {}, OWN_CLUSTER_ACCESS) == f"its {name} leads to another API server"


@pytest.mark.parametrize(
    ("name", "value"),
    [("K8S_AUTH_HOST", "https://prod"), ("K8S_AUTH_HOST", ""), ("KUBECONFIG", ""), ("K8S_AUTH_KUBECONFIG", "/other")],
)
def test_an_environment_that_changes_the_way_leads_elsewhere(name: str, value: str) -> None:
    found = reason_elsewhere({}, {name: value}, OWN_CLUSTER_ACCESS)
    assert found == f"its environment sets {name}, which leads to another API server"


def test_an_environment_that_repeats_the_run_s_own_leads_nowhere_else() -> None:
    assert (
        reason_elsewhere({}, {**OWN_CLUSTER_ACCESS, "HOME": "/other", "K8S_AUTH_VERIFY_SSL": "no"}, OWN_CLUSTER_ACCESS)
        == ""
    )


def test_without_an_api_server_of_its_own_every_address_leads_elsewhere() -> None:
    assert reason_elsewhere({"host": "http://127.0.0.1"}, {}, {})
