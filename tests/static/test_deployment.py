"""The Deployment against the program that it starts and the Pod Security level "restricted"."""

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client import ProcessCollector
from tools.docs.metrics import families

from rolecall.cli.validate import container_settings
from rolecall.kube.quantities import parse_bytes
from rolecall.runner.config.settings import Settings
from tests.static.repository import ROOT, documents

(DEPLOYMENT,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "Deployment"]
(SERVICE,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "Service"]
(BUDGET,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "PodDisruptionBudget"]
(POLICY,) = [each for each in documents("deploy/operator/*.yaml") if each["kind"] == "NetworkPolicy"]
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ARGUMENT = "containers/0/args/-"
PORTS = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}


def settings(*more: str) -> Settings:
    found = container_settings(CONTAINER | {"args": [*CONTAINER["args"], *more]})
    assert found is not None, "an unknown program, or an unknown flag"
    return found


def test_its_arguments_are_flags_of_the_program() -> None:
    assert settings().leader_elect


def test_objects_of_its_operator_become_ready() -> None:
    """The entry point of the image, which the Operator SDK's projects keep, has another default."""
    assert settings().ready_conditions


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
    assert settings().work_directory is None, "a private directory below TMPDIR"


def test_default_image_is_that_of_the_makefile() -> None:
    assert f"IMG ?= {CONTAINER['image']}\n" in (ROOT / "Makefile").read_text()


def test_replicas_are_spread_and_not_all_evicted_together() -> None:
    assert {each["topologyKey"] for each in POD["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    selectors = [each["labelSelector"] for each in POD["topologySpreadConstraints"]] + [BUDGET["spec"]["selector"]]
    assert all(each["matchLabels"].items() <= labels.items() for each in selectors)
    assert BUDGET["spec"]["maxUnavailable"] < DEPLOYMENT["spec"]["replicas"]


def test_other_pods_reach_only_probes_and_metrics() -> None:
    spec = POLICY["spec"]
    assert spec["podSelector"] == DEPLOYMENT["spec"]["selector"]
    assert spec["policyTypes"] == ["Ingress"]
    assert {port["port"] for rule in spec["ingress"] for port in rule["ports"]} == set(PORTS)


def component(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy/components" / name / "kustomization.yaml").read_text())
    return found


def added(name: str) -> dict[str, list[Any]]:
    """Return the values that a component adds to the Deployment, by their path."""
    found: dict[str, list[Any]] = {}
    for patch in component(name)["patches"]:
        if patch["target"]["kind"] == "Deployment":
            for each in yaml.safe_load(patch["patch"]):
                found.setdefault(each["path"].removeprefix("/spec/template/spec/"), []).append(each["value"])
    return found


def test_secure_metrics_are_enabled_by_flags_of_the_program() -> None:
    secured = settings(*added("secure-metrics")[ARGUMENT])
    assert secured.metrics_secure
    assert secured.metrics_require_rbac


def test_shards_are_enabled_by_flags_of_the_program_and_their_leases_permitted() -> None:
    sharing = settings(*added("shards")[ARGUMENT])
    assert sharing.leader_elect
    assert sharing.shards >= 3 * added("shards")["/spec/replicas"][0]
    (role,) = [each for each in documents("deploy/components/shards/rbac.yaml") if each["kind"] == "Role"]
    (rule,) = role["rules"]
    assert set(rule["verbs"]) == {"get", "list", "create", "update", "delete"}
    assert role["metadata"]["namespace"] == DEPLOYMENT["metadata"]["namespace"]


def test_dashboard_listens_on_loopback_for_port_forwarding() -> None:
    assert settings(*added("dashboard")[ARGUMENT]).ui_bind_address == "127.0.0.1:8090"


def test_records_fit_into_a_volume_at_their_directory() -> None:
    recording = settings(*added("records")[ARGUMENT])
    (mount,), (volume,) = added("records")["containers/0/volumeMounts/-"], added("records")["volumes/-"]
    assert str(recording.record_directory) == mount["mountPath"]
    assert mount["name"] == volume["name"]
    assert recording.record_directory_max_bytes <= parse_bytes(volume["emptyDir"]["sizeLimit"]) / 2


def test_monitoring_scrapes_the_port_of_each_form_of_the_service() -> None:
    (monitor,) = documents("deploy/components/monitoring/service_monitor.yaml")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= SERVICE["metadata"]["labels"].items()
    (renamed,) = [each for each in component("secure-metrics")["patches"] if each["target"]["kind"] == "Service"]
    (secured,) = yaml.safe_load(renamed["patch"])
    schemes = {each["port"]: each.get("scheme", "http") for each in monitor["spec"]["endpoints"]}
    assert schemes == {SERVICE["spec"]["ports"][0]["name"]: "http", secured["value"]: "https"}


ALERTS = [
    rule
    for document in documents("deploy/components/monitoring/alerts.yaml")
    for group in document["spec"]["groups"]
    for rule in group["rules"]
]
GRAFANA = json.loads((ROOT / "deploy/components/monitoring/grafana.json").read_text())
QUERIES = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]
METRIC = re.compile(r"\b([a-z_]+)(?:\{([^}]*)\}|(?=\[))")
OF_TARGETS = {"job", "namespace", "pod", "le"}


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in ALERTS)])
def test_dashboard_and_alerts_query_metrics_and_labels_that_exist(query: str) -> None:
    known = {family.name: set(family.labels) for family in families()}
    process = {metric.name: set[str]() for metric in ProcessCollector(registry=None).collect()}
    used = METRIC.findall(query)
    assert used
    grouped = {label for names in re.findall(r"by \(([^)]*)\)", query) for label in names.split(", ")}
    labels = {name: (known | process)[name.removesuffix("_bucket")] for name, _ in used}
    assert grouped <= set().union(*labels.values()) | OF_TARGETS
    for name, selected in used:
        assert {*re.findall(r"(\w+)!?=", selected)} <= labels[name] | OF_TARGETS


def test_each_alert_explains_itself_and_selects_the_metrics_of_this_operator() -> None:
    assert len(ALERTS) == 5
    assert all({"summary", "description"} == rule["annotations"].keys() for rule in ALERTS)
    assert all(f'job="{SERVICE["metadata"]["name"]}"' in rule["expr"] for rule in ALERTS)


def test_panels_have_unique_places() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in GRAFANA["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in GRAFANA["panels"]})
