"""Manifests with the facts of the Operator SDK's scaffold, and those of ``rolecall init``."""

import re
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.cli.validate import container_settings
from rolecall.workbench.project.manifests import check_manifests
from tests.static.repository import ROOT

KUSTOMIZATIONS = {
    "config/default/kustomization.yaml": """\
namespace: memcached-operator-system
namePrefix: memcached-operator-
resources: [../crd, ../rbac, ../manager]
patches:
- path: manager_metrics_patch.yaml
  target: {kind: Deployment}
""",
    "config/default/manager_metrics_patch.yaml": """\
- op: add
  path: /spec/template/spec/containers/0/args/0
  value: --metrics-bind-address=:8443
""",
    "config/crd/kustomization.yaml": "resources: [bases/memcacheds.yaml]\n",
    "config/crd/bases/memcacheds.yaml": "kind: CustomResourceDefinition\nmetadata: {name: memcacheds.example.com}\n",
    "config/rbac/kustomization.yaml": "resources: [role.yaml, bindings.yaml, leader_election_role.yaml]\n",
    "config/manager/kustomization.yaml": "resources: [manager.yaml]\n",
}
MANAGER = """\
apiVersion: v1
kind: Namespace
metadata:
  name: system
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: controller-manager
  namespace: system
spec:
  template:
    spec:
      containers:
      - args:
          - --leader-elect
          - --leader-election-id=memcached-operator
          - --health-probe-bind-address=:6789
        image: controller:latest
        name: manager
        env:
        - name: ANSIBLE_GATHERING
          value: explicit
        livenessProbe:
          httpGet:
            path: /healthz
            port: 6789
        readinessProbe:
          httpGet:
            path: /readyz
            port: 6789
        resources:
          limits:
            cpu: 500m
            memory: 768Mi
      serviceAccountName: controller-manager
      terminationGracePeriodSeconds: 10
"""
ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: manager-role
rules:
  - apiGroups: [""]
    resources: [secrets, pods]
    verbs: [create, get, list, watch]
  - apiGroups: [cache.example.com]
    resources: [memcacheds, memcacheds/status]
    verbs: [create, delete, get, list, patch, update, watch]
"""
LEADER_ELECTION_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: leader-election-role
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
"""
BINDINGS = """\
kind: ClusterRoleBinding
metadata: {name: manager-rolebinding}
roleRef: {kind: ClusterRole, name: manager-role}
subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]
---
kind: RoleBinding
metadata: {name: leader-election-rolebinding}
roleRef: {kind: Role, name: leader-election-role}
subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]
"""
EVENTS = '  - apiGroups: [""]\n    resources: [events]\n    verbs: [create, patch]\n'
ADAPTED = MANAGER.replace("Seconds: 10", "Seconds: 35").replace("500m", "'2'")
"""The scaffold with the values that rolecall needs."""

TMP = """\
        securityContext:
          readOnlyRootFilesystem: true
        volumeMounts:
        - name: scratch
          mountPath: /tmp
      volumes:
      - name: scratch
        emptyDir:
          sizeLimit: 1Gi
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def scaffold(manager: str = ADAPTED, role: str = ROLE + EVENTS, **others: str) -> None:
    """Write a project of the Operator SDK; ``default__x`` in ``others`` is the file config/default/x.yaml."""
    write(KUSTOMIZATIONS)
    write(
        {"config/manager/manager.yaml": manager, "config/rbac/role.yaml": role, "config/rbac/bindings.yaml": BINDINGS}
    )
    write({"config/rbac/leader_election_role.yaml": LEADER_ELECTION_ROLE})
    write({f"config/{name.replace('__', '/')}.yaml": text for name, text in others.items()})


def found(*paths: str) -> list[str]:
    """Return the problems in these files and directories, each as the command prints it."""
    problems = check_manifests([Path(path) for path in paths or ("config",)], container_settings)
    return [f"{each.place}: {each.severity}: {each.text}" for each in problems]


def with_tmp(text: str = TMP, manager: str = ADAPTED) -> str:
    """Return the manager with a read-only root file system and a volume."""
    return manager.replace("      serviceAccountName", f"{text}      serviceAccountName")


def test_unchanged_scaffold_has_three_values_that_need_a_change() -> None:
    scaffold(MANAGER, ROLE)
    manager = "config/manager/manager.yaml:{}: warning: Deployment controller-manager, key {}: {}"
    stop = (
        "Kubernetes kills the pod after 10 s, but a stop takes up to 30 s for runs, and more: set at least 32, or "
        "lower --graceful-shutdown-timeout"
    )
    workers = (
        "with 500m, the operator reconciles one object of each kind at a time, because the number of CPUs is the "
        "default of --max-concurrent-reconciles: raise the limit, or set the flag"
    )
    events = "no rule permits the operator to create and patch events in the namespaces of its objects: add one"
    assert found() == [
        manager.format(37, "terminationGracePeriodSeconds", stop),
        manager.format(34, "limits.cpu", workers),
        f"config/rbac/role.yaml:5: warning: ClusterRole manager-role, key rules: {events}",
    ]


def test_adapted_scaffold_has_no_problems() -> None:
    scaffold()
    assert found() == []


@pytest.mark.parametrize("file", ["config/manager/manager.yaml", "config/default/manager_metrics_patch.yaml"])
def test_flags_count_in_files_and_in_patches(file: str) -> None:
    scaffold(MANAGER)
    text = Path(file).read_text()
    added = "- op: add\n  path: /spec/template/spec/containers/0/args/-\n  value: "
    flags = "--graceful-shutdown-timeout=5s", "--max-concurrent-reconciles=2"
    if file.endswith("patch.yaml"):
        Path(file).write_text(text + "".join(f"{added}{flag}\n" for flag in flags))
    else:
        Path(file).write_text(
            text.replace("        image:", "".join(f"          - {flag}\n" for flag in flags) + "        image:")
        )
    assert found() == []


def test_strategic_merge_patch_replaces_arguments() -> None:
    """The list of arguments is not merged, so a flag in the base is lost, as in a real operator of this kind."""
    patch = """\
kind: Deployment
metadata: {name: controller-manager}
spec:
  template:
    spec:
      containers:
      - {name: proxy, image: proxy, args: [--v=10]}
      - {name: manager, args: [--leader-elect, --leader-election-id=x], resources: {limits: {cpu: 1}}}
"""
    manager = ADAPTED.replace("--leader-elect\n", "--leader-elect\n          - --max-concurrent-reconciles=4\n")
    scaffold(manager)
    assert found() == []
    scaffold(manager, default__manager_metrics_patch=patch)
    kustomization = Path("config/default/kustomization.yaml")
    kustomization.write_text(kustomization.read_text().replace("  target: {kind: Deployment}\n", ""))
    (one,) = found()
    assert one.startswith(
        "config/manager/manager.yaml:35: warning: Deployment controller-manager, key limits.cpu: with 1,"
    )


def test_overlay_patches_a_name_with_the_prefix_of_its_base() -> None:
    scaffold(MANAGER)
    write(
        {
            "config/production/kustomization.yaml": "resources: [../default]\npatchesStrategicMerge: [time.yaml]\n",
            "config/production/time.yaml": (
                "kind: Deployment\nmetadata: {name: memcached-operator-controller-manager}\n"
                "spec: {template: {spec: {terminationGracePeriodSeconds: 60, containers: [{name: manager, resources: "
                "{limits: {cpu: 3}}}]}}}\n"
            ),
        }
    )
    assert found() == []


def test_deleted_object_of_a_component_does_not_count() -> None:
    scaffold(role=ROLE)
    write(
        {
            "config/least/kustomization.yaml": (
                "kind: Component\nresources: [binding.yaml]\n"
                "patches: [{patch: '{kind: ClusterRoleBinding, metadata: {name: manager-rolebinding}, "
                "$patch: delete}'}]\n"
            ),
            "config/least/binding.yaml": BINDINGS.partition("---")[0].replace("manager-role", "least"),
            "config/one/kustomization.yaml": "resources: [../default]\ncomponents: [../least]\n",
        }
    )
    assert found() == []  # the role 'least' is elsewhere, so its rules aren't known


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (("[leases]", "[configmaps]"), "get, create, update"),
        (("[get, list, watch, create, update, patch, delete]", "[get, update]"), "create"),
    ],
)
def test_leader_election_without_leases_is_an_error(change: tuple[str, str], where: str) -> None:
    scaffold(rbac__leader_election_role=LEADER_ELECTION_ROLE.replace(*change))
    assert found() == [
        (
            "config/manager/manager.yaml:15: error: Deployment controller-manager, key args: no rule permits "
            f"controller-manager to {where} leases (coordination.k8s.io), which --leader-elect needs: add one"
        )
    ]


def test_shards_also_list_and_delete_leases() -> None:
    scaffold(ADAPTED.replace("--leader-elect\n", "--leader-elect\n          - --shards=4\n"))
    Path("config/rbac/leader_election_role.yaml").write_text(
        LEADER_ELECTION_ROLE.replace("[get, list, watch, create, update, patch, delete]", "[get, create, update]")
    )
    (one,) = found()
    assert "to list, delete leases" in one


def test_leases_are_not_needed_without_leader_election() -> None:
    scaffold(ADAPTED.replace("          - --leader-elect\n", ""))
    Path("config/rbac/leader_election_role.yaml").write_text(LEADER_ELECTION_ROLE.replace("[leases]", "[configmaps]"))
    assert found() == []


def test_events_of_one_namespace_suffice_for_a_namespaced_operator() -> None:
    scaffold(ADAPTED.replace("        env:\n", "        env:\n        - name: WATCH_NAMESPACE\n"), ROLE)
    assert found() == []


def test_permissions_granted_elsewhere_are_not_missing() -> None:
    scaffold(role=ROLE)
    Path("config/rbac/bindings.yaml").write_text(BINDINGS.replace("name: manager-role}", "name: cluster-admin}"))
    assert found() == []
    scaffold(role="aggregationRule: {}\n" + ROLE)
    assert found() == []


def test_read_only_file_system_needs_a_volume_for_tmp() -> None:
    scaffold(with_tmp())
    assert found() == []
    scaffold(with_tmp(TMP.replace("mountPath: /tmp", "mountPath: /opt/data")))
    assert found() == [
        (
            "config/manager/manager.yaml:37: error: Deployment controller-manager, key readOnlyRootFilesystem: the "
            "operator and its runs write to /tmp, which is read-only: mount an emptyDir there"
        )
    ]


@pytest.mark.parametrize(
    ("flags", "size", "needed"),
    [
        ((), "512Mi", "1Gi"),
        (("--max-artifacts-size=2Gi",), "1Gi", "2Gi"),
        (("--record-dir=/tmp/records",), "1Gi", "1.2Gi"),
        (("--max-artifacts-size=256Mi",), "512Mi", ""),
        (("--work-dir=/data", "--record-dir=/records"), "1Mi", ""),
    ],
)
def test_size_of_tmp_is_compared_with_artifacts_and_records(flags: tuple[str, ...], size: str, needed: str) -> None:
    lines = "".join(f"          - {flag}\n" for flag in flags)
    manager = ADAPTED.replace("        image:", f"{lines}        image:")
    scaffold(with_tmp(TMP.replace("1Gi", size), manager))
    expected = (
        f"Deployment controller-manager, key emptyDir.sizeLimit: Kubernetes evicts the pod when /tmp exceeds {size}, "
        f"but artifacts and records may take {needed}: raise the limit, or lower --max-artifacts-size or "
        "--record-dir-max-size"
    )
    assert [each.partition("warning: ")[2] for each in found()] == ([expected] if needed else [])


@pytest.mark.parametrize(
    ("old", "new", "address"),
    [
        ("port: 6789", "port: 8081", ":6789"),
        ("address=:6789", "address=:8081", ":8081"),
        ("address=:6789", "address=127.0.0.1:6789", "127.0.0.1:6789"),
        ("address=:6789", "address=0", "0"),
    ],
)
def test_probe_of_another_port_than_the_flag_is_an_error(old: str, new: str, address: str) -> None:
    scaffold(ADAPTED.replace(old, new))
    port = "8081" if "port" in old else "6789"
    assert [each.partition("controller-manager, ")[2] for each in found()] == [
        f"key {probe}.httpGet.port: the probe uses port {port}, but --health-probe-bind-address is {address!r}: "
        "change one of them"
        for probe in ("livenessProbe", "readinessProbe")
    ]


def test_ports_of_probes_can_be_names() -> None:
    ports = "        ports: [{name: probes, containerPort: 6789}]\n        image:"
    scaffold(ADAPTED.replace("port: 6789", "port: probes").replace("        image:", ports))
    assert found() == []


@pytest.mark.parametrize(
    ("limit", "workers", "needed"), [("500m", 4, "2"), ("1500m", 4, ""), ("2", 9, "5"), ("x", 9, "")]
)
def test_more_than_two_workers_for_each_cpu_are_too_many(limit: str, workers: int, needed: str) -> None:
    manager = ADAPTED.replace("        image:", f"          - --max-concurrent-reconciles={workers}\n        image:")
    scaffold(manager.replace("'2'", repr(limit)))
    assert [each.partition("half a CPU: ")[2] for each in found()] == (
        [f"set {needed}, or lower the flag"] if needed else []
    )


def test_workers_of_the_environment_are_unknown() -> None:
    variable = "        env:\n        - {name: WORKER_MEMCACHED_CACHE_EXAMPLE_COM, value: '3'}\n"
    scaffold(ADAPTED.replace("'2'", "500m").replace("        env:\n", variable))
    assert found() == []


@pytest.mark.parametrize(
    ("command", "timeout"),
    [
        ("[/usr/local/bin/ansible-operator, run]", 30),
        ("[rolecall, run]", 25),
        ("[/tini, --, ansible-operator, run, --graceful-shutdown-timeout=40s]", 40),
    ],
)
def test_command_decides_the_defaults(command: str, timeout: int) -> None:
    scaffold(ADAPTED.replace("35", "10").replace("        image:", f"        command: {command}\n        image:"))
    (one,) = found()
    assert f"a stop takes up to {timeout} s for runs, and more: set at least {timeout + 2}" in one


def test_entry_point_of_the_dockerfile_counts() -> None:
    scaffold(MANAGER)
    flags = '"--graceful-shutdown-timeout=5s", "--max-concurrent-reconciles=1"'
    write({"Dockerfile": f'FROM base\nENTRYPOINT ["/tini", "--", "/usr/local/bin/ansible-operator", "run", {flags}]\n'})
    assert found() == []


@pytest.mark.parametrize(("variable", "count"), [("ANSIBLE_GATHERING", 1), ("LOG_LEVEL", 0)])
def test_container_without_arguments_is_an_operator_if_it_sets_variables_of_ansible(variable: str, count: int) -> None:
    containers = f"[{{name: operator, env: [{{name: {variable}, value: explicit}}]}}]"
    pod = f"{{terminationGracePeriodSeconds: 10, containers: {containers}}}"
    write({"config/operator.yaml": f"kind: Deployment\nspec: {{template: {{spec: {pod}}}}}\n"})
    assert len(found()) == count


@pytest.mark.parametrize(
    "change",
    [
        ("        image:", "        command: [/manager]\n        image:"),
        ("--leader-elect\n", "--leader-elect\n          - --cluster-resource-namespace=x\n"),
        ("--leader-elect\n", "--leader-elect\n          - --max-concurrent-reconciles=$(COUNT)\n"),
    ],
    ids=["another program", "flags of another program", "unknown value"],
)
def test_other_containers_are_not_checked(change: tuple[str, str]) -> None:
    scaffold(MANAGER.replace(*change), ROLE)
    assert found() == []


def test_plain_files_are_checked_without_a_kustomization() -> None:
    write({"deploy/operator.yaml": MANAGER, "deploy/chart/broken.yaml": "{{ if x }}\nkind: Deployment\n", "a.yaml": ""})
    assert [re.sub(": warning.*key", "", each).partition(": ")[0] for each in found("deploy")] == [
        "deploy/operator.yaml:37 terminationGracePeriodSeconds",
        "deploy/operator.yaml:34 limits.cpu",
    ]
    assert found("deploy/operator.yaml") == found("deploy")


@pytest.mark.parametrize(
    "rest",
    [
        "bases: [https://example.com/x]",
        "bases: [nowhere.yaml]",
        "components: [nowhere]",
        "helmCharts: [{name: x}]",
        "patches: [{path: nowhere.yaml}]",
        "patches: [{patch: '[{op: remove, path: /spec/nowhere}]', target: {kind: Deployment}}]",
        "patches: [{patch: '[{op: copy, path: /spec/x, from: /spec}]', target: {kind: Deployment}}]",
        "patches: [text]",
        "resources: {}",
        "{",
    ],
)
def test_kustomization_that_cannot_be_followed_is_left_out(rest: str) -> None:
    """What it would add or change isn't known, so nothing that it lacks is missing."""
    write({"config/manager.yaml": MANAGER, "config/kustomization.yaml": f"resources: [manager.yaml]\n{rest}\n"})
    assert found() == []


@pytest.mark.parametrize(
    "pod",
    ["x", "{containers: x}", "{containers: [x]}", "{containers: [{args: [--leader-elect], env: [x], ports: [x]}]}"],
)
def test_invalid_objects_are_left_to_the_api_server(pod: str) -> None:
    text = f"kind: Deployment\nspec: {{template: {{spec: {pod}}}}}\n---\nkind: Role\nrules: [x]\n---\n- x\n"
    write({"config/operator.yaml": f"{text}---\nkind: RoleBinding\nsubjects: [x]\n"})
    assert all("terminationGracePeriodSeconds" in each for each in found())


def test_generated_project_has_no_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither alone nor with each of its components."""
    assert main(["init", "--domain", "example.com", "web"]) == 0
    monkeypatch.chdir(tmp_path / "web")
    assert main(["create", "api", "--group", "demo", "--version", "v1", "--kind", "Website"]) == 0
    files = [file for file in Path("deploy").rglob("kustomization.yaml") if "kind: Component" in file.read_text()]
    for file in files:
        names = f"resources: [../../deploy]\ncomponents: [../../{file.parent}]\n"
        write({f"overlays/{file.parent.name}/kustomization.yaml": names})
    assert found("deploy", "overlays") == []
    deployment = Path("deploy/operator/deployment.yaml")
    deployment.write_text(deployment.read_text().replace("terminationGracePeriodSeconds: 45", ""))
    assert len(set(found("deploy", "overlays"))) == 1
    assert len(found("deploy", "overlays")) == 1 + len(files)


def test_scaffold_of_the_migration_guide_has_three_values_that_need_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests/integration/projects/memcached")
    assert [each.partition(", key ")[2].partition(":")[0] for each in found()] == [
        "terminationGracePeriodSeconds",
        "limits.cpu",
        "rules",
    ]


@pytest.mark.parametrize(("selector", "count"), [("tier notin (users)", 0), ("tier=users", 1)])
def test_patch_applies_to_objects_with_its_labels(selector: str, count: int) -> None:
    rules = "- op: replace\n  path: /rules\n  value: []\n"
    role = (ROLE + EVENTS).replace("metadata:\n", "metadata:\n  labels: {tier: users}\n")
    scaffold(role=role, default__manager_metrics_patch=rules)
    kustomization = Path("config/default/kustomization.yaml")
    target = f"target: {{kind: ClusterRole, labelSelector: {selector}}}"
    kustomization.write_text(kustomization.read_text().replace("target: {kind: Deployment}", target))
    assert len(found()) == count


def test_patch_with_a_target_keeps_the_names_of_objects() -> None:
    patch = "kind: any\nmetadata: {name: any}\nspec: {template: {spec: {terminationGracePeriodSeconds: 60}}}\n"
    scaffold(MANAGER.replace("500m", "2"), default__manager_metrics_patch=patch)
    assert found() == []
