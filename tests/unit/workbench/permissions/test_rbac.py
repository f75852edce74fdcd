"""``rolecall rbac`` on recorded access sets."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.record.access import AccessSet
from rolecall.runner.record.files import RecordFiles
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record

WATCHES = """
- group: demo.example.com
  version: v1
  kind: Demo
  {content}
  manageStatus: {status}
"""
TASKS = """
- name: Write
  kubernetes.core.k8s: {state: present}
- name: Unused
  kubernetes.core.k8s_info: {kind: Pod, name: literal, namespace: kube-public}
- name: Compute
  ansible.builtin.set_fact: {a: b}
- block:
    - name: Also unused
      ansible.builtin.command: kubectl get pods
"""
SHARDS = Path(__file__).parents[4] / "deploy/components/shards/rbac.yaml"
Run = Callable[..., tuple[int, str, str]]
Rules = dict[tuple[str, str, str], set[tuple[str, tuple[str, ...]]]]


@pytest.fixture
def rbac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Record exchanges for some primaries, run the command, and return its exit code and output."""
    role = tmp_path / "roles" / "demo"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text(TASKS)
    monkeypatch.chdir(tmp_path)

    def run(
        *exchanges: Exchange,
        arguments: tuple[str, ...] = (),
        names: str = "a",
        status: str = "true",
        content: str = "role: demo",
    ) -> Any:
        (tmp_path / "watches.yaml").write_text(WATCHES.format(status=status, content=content))
        access = AccessSet(DEMO, str(role))
        for name in names:
            record = make_record(*exchanges, name=name)
            for task in record.tasks.values():
                task.path = f"{role}/tasks/main.yml:2"
            access.add(record)
        RecordFiles(tmp_path / "records", 1).write_access(DEMO, access.to_json({DEMO: "demos"}))
        code = main(["rbac", "--from", "records", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def rules(text: str) -> Rules:
    """Return the rules of manifests: namespace, group and resource, with verbs and names."""
    found: Rules = {}
    for document in yaml.safe_load_all(text):
        namespace = document["metadata"].get("namespace", "")
        for rule in document["rules"]:
            key = (namespace, rule["apiGroups"][0], rule["resources"][0])
            names = tuple(rule.get("resourceNames", ()))
            found.setdefault(key, set()).update((verb, names) for verb in rule["verbs"])
    return found


def test_operator_needs_permissions_for_its_watches(rbac: Run) -> None:
    _, printed, _ = rbac()
    own = {("get", ()), ("list", ()), ("watch", ())}
    assert rules(printed) == {
        ("", "demo.example.com", "demos"): own,
        ("", "demo.example.com", "demos/status"): {("update", ())},
        ("", "", "events"): {("create", ()), ("patch", ())},
    }
    _, printed, _ = rbac(status="false", arguments=("--leader-election", "system/lock"))
    assert ("", "demo.example.com", "demos/status") not in rules(printed)
    lease = {("create", ()), ("get", ("lock",)), ("update", ("lock",))}
    assert rules(printed)["system", "coordination.k8s.io", "leases"] == lease


def test_shards_need_the_permissions_of_their_overlay(rbac: Run) -> None:
    _, printed, _ = rbac(arguments=("--leader-election", "rolecall-system/lock", "--shards"))
    role, _ = yaml.safe_load_all(SHARDS.read_text())
    leases = "rolecall-system", "coordination.k8s.io", "leases"
    assert rules(printed)[leases] == rules(yaml.safe_dump(role))[leases]


def test_shards_without_a_lease_are_rejected(rbac: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        rbac(arguments=("--shards",))
    assert ended.value.code == 64
    assert "--shards: needs --leader-election NAMESPACE/NAME" in capsys.readouterr().err


def get(name: str, answer: object = None) -> Exchange:
    return exchange("GET", f"{CONFIG_MAPS}/{name}", None, answer)


OWNED = config_map("1", ownerReferences=[{"uid": "uid-of-a", "blockOwnerDeletion": True}])
VIEW: RawObject = {"roleRef": {"kind": "ClusterRole", "name": "view"}}
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns"
LEASES = exchange("GET", "/apis/coordination.k8s.io/v1/leases")
EXEC = exchange("GET", "/api/v1/namespaces/ns/pods/p/exec?command=ls", status=101)
IMPERSONATING = replace(exchange("GET", CONFIG_MAPS), impersonated=(("Impersonate-User", "eve"),))
REVIEW = exchange("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, {}, 201)
TWO = {"names": "ab"}
WATCHED = {**TWO, "status": "true\n  watchReads: true"}
NOT_WATCHED = {**TWO, "status": f"{WATCHED['status']}\n  blacklist: [{{version: v1, kind: ConfigMap}}]"}
CASES: dict[str, tuple[list[Exchange], dict[str, str], str, str]] = {
    "a name of one object": ([get("a-config")], {}, "configmaps", "get"),
    "a name of several objects": ([get("shared")], TWO, "configmaps", "get shared"),
    "a name in the role": ([get("literal")], {}, "configmaps", "get literal"),
    "a name in the role and another": ([get("literal"), get("loose")], {}, "configmaps", "get"),
    "a namespace in the role": (
        [exchange("GET", "/api/v1/namespaces/kube-public/configmaps")],
        {},
        "kube-public/configmaps",
        "list",
    ),
    "another namespace": ([exchange("GET", "/api/v1/namespaces/else/configmaps")], {}, "configmaps", "list"),
    "a creation": ([exchange("POST", CONFIG_MAPS, {}, {}, 201)], TWO, "configmaps", "create"),
    "a list": ([exchange("GET", CONFIG_MAPS)], TWO, "configmaps", "list"),
    "apply that creates, with the proxy's read": (
        [exchange("PATCH", f"{CONFIG_MAPS}/shared", {}, config_map("1"), 201)],
        TWO,
        "configmaps",
        "create, get shared, patch shared",
    ),
    "dependents": ([get("x", OWNED)], {}, "configmaps", "get, list, watch"),
    "dependents that do not block deletion": ([get("x", OWNED)], {}, "demos/finalizers.demo.example.com", ""),
    "dependents that block deletion": (
        [exchange("POST", CONFIG_MAPS, OWNED, OWNED, 201)],
        {},
        "demos/finalizers.demo.example.com",
        "update",
    ),
    "watched reads": ([get("shared")], WATCHED, "configmaps", "get shared, list shared, watch shared"),
    "reads that are never watched": ([LEASES], WATCHED, "leases.coordination.k8s.io", "list"),
    "reads on the blacklist": ([get("shared")], NOT_WATCHED, "configmaps", "get shared"),
    "exec": ([EXEC], {}, "pods/exec", "create, get"),
    "a role": (
        [exchange("POST", f"{RBAC}/roles", {"rules": [{"verbs": ["get"]}]}, {}, 201)],
        {},
        "roles.rbac.authorization.k8s.io",
        "create, escalate",
    ),
    "a binding": (
        [exchange("POST", f"{RBAC}/rolebindings", VIEW, {}, 201)],
        {},
        "clusterroles.rbac.authorization.k8s.io",
        "bind view",
    ),
    "impersonation": ([IMPERSONATING], TWO, "users", "impersonate eve"),
    "a query of one's own permissions": ([REVIEW], {}, "selfsubjectaccessreviews.authorization.k8s.io", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_requests_of_runs_need_permissions(case: str, rbac: Run) -> None:
    requests, options, resource, expected = CASES[case]
    _, printed, _ = rbac(*requests, **options)
    found = {
        f"{f'{namespace}/' if namespace else ''}{plural}{f'.{group}' if group else ''}": ", ".join(
            sorted(" ".join((verb, *names)) for verb, names in verbs)
        )
        for (namespace, group, plural), verbs in rules(printed).items()
    }
    assert found.get(resource, "") == expected


def test_rules_name_their_tasks_and_unrecorded_tasks_are_listed(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/x"))
    assert "  # Demo: Write (tasks/main.yml:2)" in printed.splitlines()
    untried = [line for line in printed.splitlines() if line.startswith("# not recorded: ")]
    assert untried == [
        "# not recorded: Demo, tasks/main.yml:4: Unused",
        "# not recorded: Demo, tasks/main.yml:9: Also unused",
    ]


def test_comparison_exits_with_0_if_equal_and_2_if_not(rbac: Run, tmp_path: Path) -> None:
    request = exchange("GET", f"{CONFIG_MAPS}/x")
    _, printed, _ = rbac(request)
    (tmp_path / "rbac.yaml").write_text(printed)
    code, lines, _ = rbac(request, arguments=("--compare", "rbac.yaml"))
    assert (code, lines.splitlines()[0]) == (0, "equal: nothing is missing, and nothing is too much")
    code, lines, _ = rbac(exchange("GET", CONFIG_MAPS), arguments=("--compare", "rbac.yaml"))
    assert code == 2
    assert lines.splitlines()[0] == "missing: list configmaps, for Demo: Write (tasks/main.yml:2)"
    assert lines.splitlines()[1] == "too much: get configmaps, in rbac.yaml, ClusterRole operator"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "watches.yaml").unlink(), "watches.yaml: cannot be read"),
        (lambda path: next((path / "records/access").iterdir()).unlink(), "found no access set"),
        (lambda path: next((path / "records/access").iterdir()).write_text("{"), "not a whole access set"),
        (lambda path: next((path / "records/access").iterdir()).write_text('{"format": 9}'), "format 9"),
        (lambda path: (path / "rbac.yaml").unlink(), "rbac.yaml: no such file"),
        (lambda path: (path / "rbac.yaml").write_text("a: [\n"), "rbac.yaml: cannot be read"),
        (lambda path: (path / "rbac.yaml").write_text("kind: Pod\n"), "found no Role"),
    ],
)
def test_unreadable_file_is_one_line_and_exit_code_1(
    rbac: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    message: str,
) -> None:
    (tmp_path / "rbac.yaml").write_text(rbac()[1])
    spoil(tmp_path)
    assert main(["rbac", "--from", "records", "--compare", "rbac.yaml"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("rolecall rbac: ")
    assert message in printed.err


PRUNING = {("get", ()), ("delete", ()), ("patch", ())}
MARKED: RawObject = {"annotations": {"rolecall.dev/made-for": "uid-of-a:/Secret:ns/a"}}
OPTED_IN: RawObject = {"annotations": {"rolecall.dev/prune": "true"}}
OWNER: RawObject = {"ownerReferences": [{"uid": "uid-of-a"}]}
SECRETS = CONFIG_MAPS.replace("configmaps", "secrets")


def add_prune_task(directory: Path) -> None:
    """Let the role prune."""
    (directory / "roles/demo/tasks/prune.yml").write_text("- name: Prune\n  rolecall.util.prune:\n")


@pytest.mark.parametrize("is_playbook", [False, True])
def test_role_that_prunes_needs_to_delete_and_patch_its_dependents(
    rbac: Run, tmp_path: Path, *, is_playbook: bool
) -> None:
    """Also if a playbook calls the role: the inventory is written, and dependents of pruned kinds are deleted."""
    add_prune_task(tmp_path)
    if is_playbook:
        (tmp_path / "demo.yml").write_text("- hosts: localhost\n  roles: [demo]\n")
    _, printed, _ = rbac(get("a", OWNED), content="playbook: demo.yml" if is_playbook else "role: demo")
    assert {("patch", ()), ("get", ())} <= rules(printed)["", "demo.example.com", "demos"]
    assert rules(printed)["", "", "configmaps"] >= PRUNING


@pytest.mark.parametrize(
    ("resource", "metadata", "is_pruned"),
    [
        ("secrets", OPTED_IN | OWNER, True),
        ("secrets", MARKED | OWNER, True),
        ("secrets", {"annotations": {"rolecall.dev/made-for": "uid-of-b:/Secret:ns/a"}} | OWNER, False),
        ("secrets", {"annotations": {"rolecall.dev/prune": "false"}} | OWNER, False),
        ("secrets", OWNER, False),
        ("secrets", MARKED, True),
        ("secrets", {"annotations": {"rolecall.dev/made-for": "uid-of-a:/Secret:ns/other"}} | OWNER, False),
        ("persistentvolumeclaims", OPTED_IN | OWNER, False),
    ],
    ids=[
        "opted in",
        "marked",
        "marked for another",
        "opted out",
        "no default kind",
        "in another namespace",
        "copied",
        "never",
    ],
)
def test_further_kinds_are_pruned_if_a_run_has_written_an_object_with_the_annotation(
    rbac: Run, tmp_path: Path, resource: str, metadata: RawObject, *, is_pruned: bool
) -> None:
    add_prune_task(tmp_path)
    kind = "PersistentVolumeClaim" if resource == "persistentvolumeclaims" else "Secret"
    written = config_map("1", namespace="ns", **metadata) | {"kind": kind}
    _, printed, _ = rbac(exchange("POST", CONFIG_MAPS.replace("configmaps", resource), written, written, 201))
    assert (rules(printed)["", "", resource] >= PRUNING) is is_pruned


def test_kind_of_an_object_that_a_run_has_only_read_is_not_pruned(rbac: Run, tmp_path: Path) -> None:
    add_prune_task(tmp_path)
    found = config_map("1", **OPTED_IN, **OWNER)
    _, printed, _ = rbac(exchange("GET", f"{SECRETS}/a", None, found))
    assert ("delete", ()) not in rules(printed)["", "", "secrets"]


def test_access_set_without_prunable_resources_of_an_older_version_is_read(rbac: Run, tmp_path: Path) -> None:
    rbac(get("a", OWNED))
    [path] = (tmp_path / "records/access").iterdir()
    content = json.loads(path.read_text())
    del content["prunable"]
    path.write_text(json.dumps(content))
    assert main(["rbac", "--from", "records"]) == 0


def test_role_that_does_not_prune_needs_no_deletion(rbac: Run) -> None:
    _, printed, _ = rbac(
        exchange("POST", CONFIG_MAPS, {}, config_map("1", namespace="ns", **MARKED) | {"kind": "Secret"}, 201),
        get("a", OWNED),
    )
    assert ("delete", ()) not in rules(printed)["", "", "configmaps"]
