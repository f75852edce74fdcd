"""The Deployment against the program that it starts and the Pod Security level "restricted"."""

from typing import Any

import pytest
import yaml

from rolecall.cli.ansible_operator import parser
from rolecall.cli.parsing import apply_flags, join_flag_values
from rolecall.cli.run import ansible_operator_program
from tests.static.repository import ROOT, documents

(DEPLOYMENT,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "Deployment"]
(SERVICE,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "Service"]
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PORTS = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}


def settings(*more: str) -> Any:
    options = parser().parse_args(list(join_flag_values(["run", *CONTAINER["args"], *more])))
    return apply_flags(ansible_operator_program().settings, options)


def test_its_arguments_are_flags_of_the_program() -> None:
    assert settings().leader_elect


def test_probes_and_metrics_are_where_the_program_serves_them() -> None:
    assert settings().health_probe_bind_address == f":{PORTS['probes']}"
    assert settings().metrics_bind_address == f":{PORTS['metrics']}"
    assert {CONTAINER[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {"probes"}
    assert [port["targetPort"] for port in SERVICE["spec"]["ports"]] == ["metrics"]


def test_the_service_selects_the_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_lease_is_the_one_that_the_permissions_name() -> None:
    (role,) = [each for each in documents("deploy/rbac/*.yaml") if each["kind"] == "Role"]
    named = {name for rule in role["rules"] for name in rule.get("resourceNames", [])}
    assert named == {settings().leader_election_id}
    assert role["metadata"]["namespace"] == DEPLOYMENT["metadata"]["namespace"]


def test_a_pod_has_longer_to_end_than_the_program_takes() -> None:
    assert POD["terminationGracePeriodSeconds"] > settings().grace_seconds


def test_deployment_has_a_second_replica() -> None:
    assert DEPLOYMENT["spec"]["replicas"] > 1
    assert settings().leader_elect


def test_the_pod_is_what_the_level_restricted_allows() -> None:
    assert POD["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    context = CONTAINER["securityContext"]
    assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    (namespace,) = [each for each in documents("deploy/rbac/*.yaml") if each["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_the_directory_of_temporary_files_is_writable() -> None:
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert [mount["mountPath"] for mount in CONTAINER["volumeMounts"]] == ["/tmp"]  # noqa: S108 - in the container
    assert str(settings().work_directory).startswith("/tmp/")  # noqa: S108 - as above


def test_its_image_is_the_one_that_make_deploy_replaces() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"IMG ?= {CONTAINER['image']}\n" in makefile
    assert f"s|image: {CONTAINER['image']}$$|" in makefile


def test_secure_metrics_are_enabled_by_flags_of_the_program() -> None:
    (patch,) = yaml.safe_load((ROOT / "deploy/secure-metrics/kustomization.yaml").read_text())["patches"]
    secured = settings(*(each["value"] for each in yaml.safe_load(patch["patch"])))
    assert secured.metrics_secure
    assert secured.metrics_require_rbac


def test_shards_are_asked_for_by_flags_of_the_program_and_may_use_their_leases() -> None:
    (patch,) = yaml.safe_load((ROOT / "deploy/shards/kustomization.yaml").read_text())["patches"]
    values = {each["path"]: each["value"] for each in yaml.safe_load(patch["patch"])}
    sharing = settings(values["/spec/template/spec/containers/0/args/-"])
    assert sharing.leader_elect
    assert sharing.shards >= 3 * values["/spec/replicas"]
    (role,) = [each for each in documents("deploy/shards/rbac.yaml") if each["kind"] == "Role"]
    (rule,) = role["rules"]
    assert set(rule["verbs"]) == {"get", "list", "create", "update", "delete"}
    assert role["metadata"]["namespace"] == DEPLOYMENT["metadata"]["namespace"]


def test_dashboard_listens_on_loopback_for_port_forwarding() -> None:
    (patch,) = yaml.safe_load((ROOT / "deploy/dashboard/kustomization.yaml").read_text())["patches"]
    (operation,) = yaml.safe_load(patch["patch"])
    assert settings(operation["value"]).ui_bind_address == "127.0.0.1:8090"


@pytest.mark.parametrize("directory", ["podcount", "secure-metrics", "shards", "dashboard"])
def test_a_variant_has_everything_that_the_plain_deployment_has(directory: str) -> None:
    plain = yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text())["resources"]
    variant = yaml.safe_load((ROOT / "deploy" / directory / "kustomization.yaml").read_text())["resources"]
    assert {f"../{each}" for each in plain} <= set(variant)
