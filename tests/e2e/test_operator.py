"""The operator on a real node, from ``make deploy`` to ``make uninstall``; tests build on each other in this order.

The commands are those of the page about the deployment, in its order.
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import NAMESPACE, PROJECT, Cluster, Document, eventually, is_running
from tests.e2e.images import CHANGED, OPERATOR
from tests.e2e.operator_pod import FETCH, fetch, in_operator, leader
from tests.e2e.reader import Reader
from tests.guides import guide
from tests.outcomes import check

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:rolecall"
SAID_AT = "zundokokiyoshi.kaitoy.github.com/said-at-millis"
WORDS_DURING_TAKEOVER = 40
PODS_DURING_TAKEOVER = 6
TAKEOVER = f"""
apiVersion: zundokokiyoshi.kaitoy.github.com/v1beta1
kind: Hikawa
metadata: {{name: song, namespace: takeover}}
spec: {{intervalMillis: 500, numZundokos: {WORDS_DURING_TAKEOVER}}}
---
apiVersion: scaling.example.com/v1
kind: PodScaler
metadata: {{name: scaler, namespace: takeover}}
spec: {{count: {PODS_DURING_TAKEOVER}, selector: {{app: takeover}}}}
"""


@pytest.fixture(scope="module")
def page(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return the reader of the page about the deployment."""
    return Reader(guide("docs/tutorials/deploy-samples.md"), cluster, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def deployed(cluster: Cluster, page: Reader, operator_image: str) -> Iterator[Cluster]:
    """Yield the cluster with the operator deployed."""
    page.do(f"make deploy IMG={operator_image}")
    page.do("kubectl -n rolecall-system rollout status deployment/rolecall")
    cluster.wait_for_rollout()
    yield cluster
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "namespace", "takeover", "monitoring")
    cluster.make("undeploy")
    cluster.make("uninstall")


def status(cluster: Cluster, obj: str, namespace: str) -> Document:
    found: Document = cluster.get(obj, "-n", namespace).get("status", {})
    return found


def words(cluster: Cluster) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cluster.items("zundokos", "takeover"))


def test_the_four_operators_do_their_work_with_real_pods(deployed: Cluster, page: Reader) -> None:
    page.do("kubectl apply -k deploy/samples")
    page.do("kubectl -n podscaler-sample wait podscaler/example-podscaler --for=condition=Ready --timeout=300s")
    page.do(f"make deploy IMG={OPERATOR} COMPONENTS=podcount")

    def reached() -> dict[str, Any]:
        scaler = status(deployed, "podscaler/example-podscaler", "podscaler-sample")
        song = status(deployed, "hikawa/hikawa-sample", "hikawa-sample")
        foo = status(deployed, "foo/foos.samplecontroller.k8s.io", "foo-sample")
        replica_set = deployed.get("replicaset/example-replicaset", "-n", "replicaset-sample")
        return {
            "ready pods": scaler.get("ready"),
            "sung": song.get("kiyoshied"),
            "available": foo.get("availableReplicas"),
            "counted": replica_set["metadata"].get("labels", {}).get("pod-count"),
        }

    wanted = {"ready pods": 4, "sung": True, "available": 2, "counted": "3"}
    eventually(reached, lambda seen: seen == wanted, 480, "every sample has reached its end state")
    pods = deployed.items("pods", "podscaler-sample", "app=nginx")
    assert len([pod for pod in pods if is_running(pod)]) == 4


def test_operator_is_unprivileged_and_its_image_is_read_only(deployed: Cluster) -> None:
    assert in_operator(deployed, "id", "-u").strip() == "1001"
    assert in_operator(deployed, "cat", "/proc/1/comm").strip() == "rolecall-init"
    place = "/opt/ansible/roles/foo/tasks/main.yml"
    refused = in_operator(deployed, "sh", "-c", f"echo >>{place} && echo written || true")
    assert "written" not in refused
    assert in_operator(deployed, "cat", "/licenses/dependencies").count("\n") > 40


def test_namespace_rejects_pods_with_more_permissions(deployed: Cluster) -> None:
    pod = ("run", "privileged", "--image=nginx:latest", "-n", NAMESPACE)
    refused = deployed.run(*deployed.kubectl_words, *pod)
    assert 'violates PodSecurity "restricted' in refused.stderr


def test_another_replica_takes_over_without_lost_or_repeated_runs(deployed: Cluster) -> None:
    first = eventually(lambda: leader(deployed), bool, 480, "a replica leads")
    deployed.namespace("takeover")
    deployed.apply(TAKEOVER)
    eventually(lambda: words(deployed), lambda seen: len(seen) > 5, 240, "the song has begun")
    deployed.kubectl("delete", "pod", first, "-n", NAMESPACE, "--wait=false")
    eventually(lambda: leader(deployed), lambda name: name not in ("", first), 480, "the other replica leads")
    sung = eventually(lambda: words(deployed), lambda seen: len(seen) >= WORDS_DURING_TAKEOVER, 360, "the song goes on")
    assert sung == [f"song-zundoko-{number:03d}" for number in range(1, len(sung) + 1)]
    assert gaps(deployed.items("zundokos", "takeover")) > 0.49
    eventually(
        lambda: status(deployed, "podscaler/scaler", "takeover").get("ready"),
        lambda ready: ready == PODS_DURING_TAKEOVER,
        240,
        "all pods are ready",
    )
    events = deployed.items("events", "takeover")
    assert [each["message"] for each in events if each["reason"] == "Killing"] == []
    deployed.kubectl("delete", "-f", "-", stdin=TAKEOVER)


def gaps(said: list[Document]) -> float:
    """Return the shortest time between two words, in seconds."""
    moments = sorted(int(each["metadata"]["annotations"][SAID_AT]) for each in said)
    return min(after - before for before, after in pairwise(moments)) / 1000


def rules(cluster: Cluster, account: str, namespace: str) -> set[tuple[str, ...]]:
    """Return everything that an account may do in a namespace, as the API server sees it."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    ask = ("create", "--as", account, "--validate=false", "-o", "json", "-f", "-")
    answer = cluster.kubectl(*ask, stdin=json.dumps(review))
    return flat(json.loads(answer)["status"]["resourceRules"])


def flat(given: list[Document]) -> set[tuple[str, ...]]:
    return {
        (group, resource, name, verb)
        for rule in given
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    }


def written(kind: str) -> set[tuple[str, ...]]:
    """Return the permissions in the roles of a kind that ``make deploy COMPONENTS=podcount`` has applied."""
    files = [*(PROJECT / "deploy/rbac").glob("*.yaml"), PROJECT / "deploy/components/podcount/rbac.yaml"]
    found = [each for path in files for each in yaml.safe_load_all(path.read_text()) if each.get("kind") == kind]
    return set().union(*(flat(each["rules"]) for each in found))


def test_service_account_has_only_the_permissions_of_its_role(deployed: Cluster) -> None:
    anybody = rules(deployed, "system:serviceaccount:default:default", "default")
    assert rules(deployed, ACCOUNT, "default") - anybody == written("ClusterRole")
    assert rules(deployed, ACCOUNT, NAMESPACE) - anybody == written("ClusterRole") | written("Role")


def test_metrics_need_no_token_by_default(deployed: Cluster) -> None:
    address = deployed.get("service/rolecall-metrics", "-n", NAMESPACE)["spec"]["clusterIP"]
    assert "ansible_operator_build_info" in fetch(deployed, f"http://{address}:8443/metrics")
    of_leader = fetch(deployed, "http://localhost:8443/metrics")
    assert re.search(
        r'^resource_created_at_seconds\{.*kind="PodScaler".*name="example-podscaler"', of_leader, re.MULTILINE
    )


def test_secured_metrics_need_a_token(deployed: Cluster, page: Reader) -> None:
    page.do(f'make deploy IMG={OPERATOR} COMPONENTS="podcount secure-metrics"')
    deployed.wait_for_rollout()
    space = deployed.namespace("monitoring")
    for name in ("prometheus", "stranger"):
        deployed.apply(f"{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {space}}}}}")
    deployed.kubectl("delete", "--ignore-not-found", "clusterrolebinding", "metrics")
    (binding,) = [each.command for each in page.guide.steps if "clusterrolebinding" in each.command]
    page.do(binding)
    tokens = {
        name: deployed.kubectl("create", "token", name, "-n", space).strip() for name in ("prometheus", "stranger")
    }
    url = "https://localhost:8443/metrics"
    assert fetch(deployed, url).strip() == "HTTP 401"
    assert fetch(deployed, url, tokens["stranger"]).strip() == "HTTP 403"
    assert "ansible_operator_build_info" in fetch(deployed, url, tokens["prometheus"])
    deployed.kubectl("delete", "clusterrolebinding", "metrics")


def test_dashboard_is_served_through_a_forwarded_port(deployed: Cluster) -> None:
    deployed.make("deploy", f"IMG={OPERATOR}", "COMPONENTS=podcount dashboard")
    deployed.wait_for_rollout()
    pod = eventually(lambda: leader(deployed), bool, 480, "a replica leads")
    read = (*deployed.environment.run_in, "env", "no_proxy=*", sys.executable, "-c", FETCH)

    def look() -> Document:
        response: Document = json.loads(deployed.run(*read, "http://127.0.0.1:8090/?format=json").stdout or "{}")
        return response

    def have_succeeded(view: Document) -> bool:
        return [row["state"] for row in view.get("rows", [])].count("succeeded") > 2

    with deployed.port_forward(NAMESPACE, f"pod/{pod}", 8090):
        view = eventually(look, have_succeeded, 240, "the dashboard shows objects that have succeeded")
    assert ("foo-sample", "foos.samplecontroller.k8s.io") in [(row["namespace"], row["name"]) for row in view["rows"]]
    assert view["replica"]["text"] == "This replica runs the roles."


def test_upgrade_to_a_changed_role_reconciles_existing_objects(
    deployed: Cluster, page: Reader, changed_image: str
) -> None:
    assert changed_image == CHANGED
    page.do(f"make deploy IMG={CHANGED} COMPONENTS=podcount")
    deployed.wait_for_rollout()
    eventually(
        lambda: deployed.get("deployment/foo-deployment", "-n", "foo-sample")["metadata"]["annotations"],
        lambda seen: seen.get("e2e.rolecall.dev/role") == "changed",
        480,
        "the changed role has run for the Foo that was there",
    )


def test_undeploy_leaves_only_the_kinds(deployed: Cluster, page: Reader) -> None:
    page.do("kubectl delete -k deploy/samples")
    page.do("make undeploy")
    kinds = "crd,clusterrole,clusterrolebinding,namespace,mutatingwebhookconfiguration,validatingwebhookconfiguration"
    left = {
        name.rpartition("/")[2] for name in deployed.kubectl("get", kinds, "-o", "name").split() if "rolecall" in name
    }
    assert left == {name for name in left if name.endswith(("-viewer", "-editor"))}, "the permissions of users stay"
    assert {name for name in kinds_of(deployed) if deployed.get("crd", name)} == kinds_of(deployed)


def test_uninstall_removes_the_kinds(deployed: Cluster, page: Reader) -> None:
    page.do("make uninstall")
    assert [name for name in kinds_of(deployed) if deployed.get("crd", name)] == []


def kinds_of(cluster: Cluster) -> set[str]:
    """Return the names of the definitions in ``deploy/crds``."""
    documents = yaml.safe_load_all(cluster.kubectl("kustomize", "deploy/crds"))
    return {document["metadata"]["name"] for document in documents}


def test_every_command_of_the_page_was_done_in_its_order(page: Reader) -> None:
    check(page.guide, page.all_done)
