"""``rolecall rbac`` on recorded access sets, each rule for the reason that docs name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.kube.references import RawObject
from rolecall.runner.proxy import Exchange
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.record.access import AccessSet
from rolecall.runner.record.files import RecordFiles
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record

WATCHES = """
- group: demo.example.com
  version: v1
  kind: Demo
  role: demo
  manageStatus: {status}
"""
TASKS = """
- name: Write
  kubernetes.core.k8s: {state: present}
- name: Never taken
  kubernetes.core.k8s_info: {kind: Pod, name: literal, namespace: kube-public}
- name: Compute
  ansible.builtin.set_fact: {a: b}
- block:
    - name: Nor this
      ansible.builtin.command: kubectl get pods
"""
SHARDS = Path(__file__).parents[4] / "deploy/shards/rbac.yaml"
Run = Callable[..., tuple[int, str, str]]
Rules = dict[tuple[str, str, str], set[tuple[str, tuple[str, ...]]]]


@pytest.fixture
def rbac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Record exchanges for some primaries, run the command, and return its exit code and what it printed."""
    role = tmp_path / "roles" / "demo"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text(TASKS)
    monkeypatch.chdir(tmp_path)

    def run(*exchanges: Exchange, arguments: tuple[str, ...] = (), names: str = "a", status: str = "true") -> Any:
        (tmp_path / "watches.yaml").write_text(WATCHES.format(status=status))
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


def test_the_operators_own_needs_come_from_the_watches(rbac: Run) -> None:
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


def test_replicas_with_shards_need_what_their_overlay_gives(rbac: Run) -> None:
    _, printed, _ = rbac(arguments=("--leader-election", "rolecall-system/lock", "--shards"))
    role, _ = yaml.safe_load_all(SHARDS.read_text())
    leases = "rolecall-system", "coordination.k8s.io", "leases"
    assert rules(printed)[leases] == rules(yaml.safe_dump(role))[leases]


def test_shards_are_refused_without_the_lease_that_they_need(rbac: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        rbac(arguments=("--shards",))
    assert ended.value.code == 64
    assert "--shards: needs --leader-election NAMESPACE/NAME" in capsys.readouterr().err


def test_names_that_differ_from_object_to_object_are_not_fixed(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/a-config"))
    assert rules(printed)["", "", "configmaps"] == {("get", ())}


def test_names_are_fixed_if_several_objects_ask_for_the_same_or_the_role_says_them(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/shared"), names="ab")
    assert rules(printed)["", "", "configmaps"] == {("get", ("shared",))}
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/literal"))
    assert rules(printed)["", "", "configmaps"] == {("get", ("literal",))}
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/literal"), exchange("GET", f"{CONFIG_MAPS}/loose"))
    assert rules(printed)["", "", "configmaps"] == {("get", ())}


def test_a_namespace_that_the_role_says_gets_a_role_of_its_own(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", "/api/v1/namespaces/kube-public/configmaps"))
    assert rules(printed)["kube-public", "", "configmaps"] == {("list", ())}
    _, printed, _ = rbac(exchange("GET", "/api/v1/namespaces/somewhere/configmaps"))
    assert rules(printed)["", "", "configmaps"] == {("list", ())}


def test_create_and_plain_lists_take_no_names(rbac: Run) -> None:
    requests = [exchange("POST", CONFIG_MAPS, {}, {}, 201), exchange("GET", CONFIG_MAPS)]
    _, printed, _ = rbac(*requests, names="ab")
    assert rules(printed)["", "", "configmaps"] == {("create", ()), ("list", ())}


def test_apply_that_creates_needs_create_and_patch_and_the_proxys_read(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("PATCH", f"{CONFIG_MAPS}/shared", {}, config_map("1"), 201), names="ab")
    assert rules(printed)["", "", "configmaps"] == {("create", ()), ("get", ("shared",)), ("patch", ("shared",))}


def test_a_kind_that_primaries_own_is_watched(rbac: Run) -> None:
    owned = config_map("1", ownerReferences=[{"uid": "uid-of-a", "blockOwnerDeletion": True}])
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/x", None, owned))
    assert rules(printed)["", "", "configmaps"] == {("get", ()), ("list", ()), ("watch", ())}
    assert ("", "demo.example.com", "demos/finalizers") not in rules(printed)
    _, printed, _ = rbac(exchange("POST", CONFIG_MAPS, owned, owned, 201))
    assert rules(printed)["", "demo.example.com", "demos/finalizers"] == {("update", ())}


def test_what_is_read_is_watched_where_reads_are_triggers(rbac: Run) -> None:
    requests = [exchange("GET", f"{CONFIG_MAPS}/shared"), exchange("GET", "/apis/coordination.k8s.io/v1/leases")]
    watched = "true\n  watchReads: true"
    _, printed, _ = rbac(*requests, names="ab", status=watched)
    assert rules(printed)["", "", "configmaps"] == {(verb, ("shared",)) for verb in ("get", "list", "watch")}
    assert rules(printed)["", "coordination.k8s.io", "leases"] == {("list", ())}
    blacklist = "\n  blacklist: [{version: v1, kind: ConfigMap}]"
    _, printed, _ = rbac(*requests, names="ab", status=watched + blacklist)
    assert rules(printed)["", "", "configmaps"] == {("get", ("shared",))}


def test_exec_needs_create_on_it(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", "/api/v1/namespaces/ns/pods/p/exec?command=ls", status=101))
    assert rules(printed)["", "", "pods/exec"] == {("create", ()), ("get", ())}


def test_giving_rights_away_needs_escalate_and_bind(rbac: Run) -> None:
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns"
    reference: RawObject = {"roleRef": {"kind": "ClusterRole", "name": "view"}}
    _, printed, _ = rbac(
        exchange("POST", f"{base}/roles", {"rules": [{"verbs": ["get"]}]}, {}, 201),
        exchange("POST", f"{base}/rolebindings", reference, {}, 201),
    )
    group = "rbac.authorization.k8s.io"
    assert rules(printed)["", group, "roles"] == {("create", ()), ("escalate", ())}
    assert rules(printed)["", group, "clusterroles"] == {("bind", ("view",))}


def test_impersonation_needs_impersonate(rbac: Run) -> None:
    request = replace(exchange("GET", CONFIG_MAPS), impersonated=(("Impersonate-User", "eve"),))
    _, printed, _ = rbac(request, names="ab")
    assert rules(printed)["", "", "users"] == {("impersonate", ("eve",))}


def test_each_rule_names_its_kinds_and_tasks_and_tasks_without_a_record_are_listed(rbac: Run) -> None:
    _, printed, _ = rbac(exchange("GET", f"{CONFIG_MAPS}/x"))
    assert "  # Demo: Write (tasks/main.yml:2)" in printed.splitlines()
    untried = [line for line in printed.splitlines() if line.startswith("# not recorded: ")]
    assert untried == [
        "# not recorded: Demo, tasks/main.yml:4: Never taken",
        "# not recorded: Demo, tasks/main.yml:9: Nor this",
    ]


def test_a_comparison_ends_with_0_if_equal_and_2_if_not(rbac: Run, tmp_path: Path) -> None:
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
        (lambda folder: (folder / "watches.yaml").unlink(), "watches.yaml: cannot be read"),
        (lambda folder: next((folder / "records/access").iterdir()).unlink(), "found no access set"),
        (lambda folder: next((folder / "records/access").iterdir()).write_text("{"), "not a whole access set"),
        (lambda folder: next((folder / "records/access").iterdir()).write_text('{"format": 9}'), "format 9"),
        (lambda folder: (folder / "rbac.yaml").unlink(), "rbac.yaml: no such file"),
        (lambda folder: (folder / "rbac.yaml").write_text("a: [\n"), "rbac.yaml: cannot be read"),
        (lambda folder: (folder / "rbac.yaml").write_text("kind: Pod\n"), "found no Role"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_1(
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


def test_a_request_for_ones_own_rights_needs_nothing(rbac: Run) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert parse("POST", path).resource == "selfsubjectaccessreviews"
    _, printed, _ = rbac(exchange("POST", path, {}, {}, 201))
    assert "authorization.k8s.io" not in json.dumps(list(rules(printed)))
