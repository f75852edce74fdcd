"""``rolecall rbac --write`` on projects of the Operator SDK and of ``rolecall init``."""

from pathlib import Path

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.workbench.permissions.project_files import BEGIN, END
from tests.unit.runner.record.records import CONFIG_MAPS, exchange
from tests.unit.workbench.permissions.test_rbac import Run, rbac

__all__ = ["rbac"]

ROLE = """---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: manager-role # patched by kustomize
rules:
##
## Base operator rules
##
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - create # for the password
##
## Rules for demo.example.com/v1, Kind: Demo
##
- apiGroups:
  - demo.example.com
  resources:
  - demos
  - demos/status
  verbs:
  - get
  - list
  - watch
  - update
# +kubebuilder:scaffold:rules
"""
BINDING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manager-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager-role}
subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]
"""
EDITOR = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: demo-editor-role}
rules: [{apiGroups: [demo.example.com], resources: [demos], verbs: ["*"]}]
"""
ELECTION = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leader-election-role}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leader-election-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader-election-role}
subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]
"""


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    """Return the file with the manager's role in the layout of the Operator SDK."""
    directory = tmp_path / "config" / "rbac"
    directory.mkdir(parents=True)
    for name, text in (("role_binding", BINDING), ("demo_editor_role", EDITOR), ("leader_election_role", ELECTION)):
        (directory / f"{name}.yaml").write_text(text)
    role = directory / "role.yaml"
    role.write_text(ROLE)
    return role


GET = exchange("GET", f"{CONFIG_MAPS}/a")
POST = exchange("POST", CONFIG_MAPS)
WRITE = ("--write",)


def generated(text: str) -> list[tuple[str, str]]:
    """Return resource and verb of each permission between the comments."""
    lines = text.splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if line.strip() == mark) for mark in (BEGIN, END))
    rules = yaml.safe_load("\n".join(lines[begin:end]))
    return sorted((rule["resources"][0], verb) for rule in rules for verb in rule["verbs"])


def test_missing_rules_are_added_and_every_other_line_stays(rbac: Run, sdk: Path) -> None:
    code, printed, _ = rbac(GET, arguments=WRITE)
    text = sdk.read_text()
    added = [line for line in text.splitlines() if line not in ROLE.splitlines()]
    assert [line for line in text.splitlines() if line in ROLE.splitlines()] == ROLE.splitlines()
    assert text.endswith(f"{END}\n# +kubebuilder:scaffold:rules\n")
    assert generated(text) == [("configmaps", "get"), ("events", "create"), ("events", "patch")]
    assert all(f"+{line}" in printed.splitlines() for line in added)
    assert "too much: create secrets" in printed
    assert code == 0


def test_second_write_changes_nothing(rbac: Run, sdk: Path) -> None:
    rbac(GET, arguments=WRITE)
    text = sdk.read_text()
    code, printed, _ = rbac(GET, arguments=WRITE)
    assert (code, sdk.read_text()) == (0, text)
    assert printed.startswith("unchanged:")


def test_generated_rules_follow_the_records(rbac: Run, sdk: Path) -> None:
    rbac(GET, arguments=WRITE)
    rbac(POST, arguments=WRITE)
    assert generated(sdk.read_text()) == [("configmaps", "create"), ("events", "create"), ("events", "patch")]


def test_line_ends_and_a_missing_last_one_are_kept(rbac: Run, sdk: Path) -> None:
    old = ROLE.replace("# +kubebuilder:scaffold:rules\n", "").rstrip().replace("\n", "\r\n")
    sdk.write_bytes(old.encode())
    rbac(GET, arguments=WRITE)
    text = sdk.read_bytes().decode()
    assert text.startswith(old)
    assert text.count("\n") == text.count("\r\n") > old.count("\r\n")


OF_STATUS = tuple(f"{verb} demos.demo.example.com/status" for verb in ("get", "list", "watch"))


@pytest.fixture
def namespaced(sdk: Path) -> Path:
    """Return the file with the manager's role in a project without ClusterRoles for it."""
    sdk.write_text(
        ROLE.replace("kind: ClusterRole", "kind: Role").replace("metadata:", "metadata:\n  namespace: system")
    )
    binding = BINDING.replace("kind: Cluster", "kind: ").replace("{name: m", "{namespace: system, name: m")
    (sdk.parent / "role_binding.yaml").write_text(binding.replace("ClusterRole", "Role"))
    return sdk


def test_role_of_one_namespace_gets_the_missing_rules_there(rbac: Run, namespaced: Path) -> None:
    elsewhere = exchange("GET", "/api/v1/namespaces/shared/configmaps/literal")
    everywhere = exchange("GET", "/api/v1/nodes/literal")
    code, printed, _ = rbac(GET, elsewhere, everywhere, arguments=WRITE)
    text = namespaced.read_text()
    assert generated(text) == [("configmaps", "get"), ("events", "create"), ("events", "patch")]
    assert [line for line in printed.splitlines() if line.startswith("missing: ")] == [
        f"missing: get {each} (literal), for Demo: Write (tasks/main.yml:2): add it to a ClusterRole"
        for each in ("configmaps", "nodes")
    ]
    assert code == 2

    _, printed, _ = rbac(GET, arguments=("--compare", str(namespaced)))
    found = {line.split(", in ")[0] for line in printed.splitlines() if not line.startswith("not recorded: ")}
    assert found == {
        f"too much: {each} in namespace system"
        for each in ("create secrets", "update demos.demo.example.com", *OF_STATUS)
    }, "only the rules of the project are too much"


def test_lease_is_granted_by_a_bound_role_without_namespace(rbac: Run, sdk: Path) -> None:
    code, printed, _ = rbac(arguments=(*WRITE, "--leader-election", "system/lock"))
    assert (code, "leases" in sdk.read_text(), "missing:" in printed) == (0, False, False)
    (sdk.parent / "leader_election_role.yaml").unlink()
    code, printed, _ = rbac(arguments=(*WRITE, "--leader-election", "system/lock"))
    assert code == 2
    assert "missing: update leases.coordination.k8s.io (lock) in namespace system" in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rules:\n", "rules: {{ rules }}\n"), "cannot be read"),
        (("  - demos\n", "  - others\n"), "demos.demo.example.com: expected one bound ClusterRole with a rule for it"),
        (("name: manager-role ", "name: other "), "demos.demo.example.com: expected one bound ClusterRole"),
        (("##\n- apiGroups:\n  - demo", f"{BEGIN}\n- apiGroups:\n  - demo"), f"expected {END!r} after"),
        (("# +kubebuilder", f"{END}\n# +kubebuilder"), "without the other comment of its pair"),
    ],
)
def test_file_that_is_not_understood_is_one_line_and_nothing_is_written(
    rbac: Run, sdk: Path, change: tuple[str, str], message: str
) -> None:
    assert change[0] in ROLE
    sdk.write_text(ROLE.replace(*change))
    before = {path: path.read_text() for path in sdk.parent.iterdir()}
    code, printed, error = rbac(GET, arguments=WRITE)
    assert (code, printed) == (1, "")
    assert message in error
    assert error.count("\n") == 1
    assert {path: path.read_text() for path in sdk.parent.iterdir()} == before


def test_flow_style_and_aliases_are_rejected(rbac: Run, sdk: Path) -> None:
    sdk.write_text(EDITOR.replace("demo-editor-role", "manager-role"))
    code, _, error = rbac(GET, arguments=WRITE)
    assert (code, "write the rules as a block" in error) == (1, True)
    rule = "rules:\n- &rule {apiGroups: [demo.example.com], resources: [demos], verbs: [get]}\n- *rule\n"
    sdk.write_text(ROLE.partition("rules:\n")[0] + rule)
    code, _, error = rbac(GET, arguments=WRITE)
    assert (code, "write the last rule as plain YAML" in error) == (1, True)


def test_rules_of_a_new_project_go_to_the_file_of_the_kind(
    rbac: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--domain", "example.com", "web"]) == 0
    monkeypatch.chdir(tmp_path / "web")
    assert main(["create", "api", "--group", "demo", "--version", "v1", "--kind", "Demo"]) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web" / "deploy").rename(tmp_path / "deploy")
    capsys.readouterr()
    before = {path: path.read_text() for path in (tmp_path / "deploy").rglob("*.yaml")}
    code, printed, _ = rbac(GET, exchange("DELETE", CONFIG_MAPS), arguments=WRITE)
    changed = [path.name for path in before if path.read_text() != before[path]]
    assert (code, changed) == (0, ["demo.yaml"]), printed
    assert "leases" not in printed
    text = (tmp_path / "deploy/rbac/demo.yaml").read_text()
    assert generated(text) == [("configmaps", "deletecollection")]
    start, end = text.index(f"  {BEGIN}\n"), text.index(f"  {END}\n") + len(f"  {END}\n")
    assert text[:start] + text[end:] == before[tmp_path / "deploy/rbac/demo.yaml"]


def test_project_without_rbac_files_is_an_error(rbac: Run) -> None:
    code, _, error = rbac(GET, arguments=WRITE)
    assert (code, "neither exists: name the directory after --write" in error) == (1, True)
    code, _, error = rbac(GET, arguments=("--write", "gone"))
    assert (code, "gone: no such directory" in error) == (1, True)


def test_write_and_compare_exclude_each_other(rbac: Run) -> None:
    with pytest.raises(SystemExit) as raised:
        rbac(GET, arguments=("--write", "--compare", "config/rbac"))
    assert raised.value.code == 64


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec:
  template:
    spec:
      containers:
        - name: manager
          image: controller:latest
          ARGS
          env: [{name: ANSIBLE_GATHERING, value: explicit}, {name: LOCK, value: demo}]
"""
ELECTS = "--leader-elect, --leader-election-id=$(LOCK)"
LEASE = ("create leases", "get leases", "update leases")
AUTH = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-auth-role}
rules:
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-auth-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-auth-role}
subjects: [{kind: ServiceAccount, name: controller-manager, namespace: system}]
"""


def deploy(project: Path, arguments: str) -> None:
    """Write the Deployment of a project of the Operator SDK."""
    (project / "config/manager").mkdir(exist_ok=True)
    (project / "config/manager/manager.yaml").write_text(DEPLOYMENT.replace("ARGS", arguments))


def lines_with(printed: str, *parts: str) -> list[str]:
    return [line for line in printed.splitlines() if all(part in line for part in parts)]


@pytest.mark.parametrize(
    "arguments",
    [
        f"args: [{ELECTS}]",
        f"command: [/tini, --, rolecall, run]\n          args: [{ELECTS}]",
        f"command: [/usr/local/bin/entrypoint, ansible-operator, run, {ELECTS}]",
    ],
)
def test_lease_of_the_deployment_is_needed(rbac: Run, sdk: Path, tmp_path: Path, arguments: str) -> None:
    role = sdk.parent / "leader_election_role.yaml"
    role.write_text(ELECTION.replace("verbs: [get, create, update]", "resourceNames: [demo], verbs: [get, update]"))
    _, printed, _ = rbac(GET, arguments=WRITE)
    assert len(lines_with(printed, "too much:", "leases")) == 2
    deploy(tmp_path, arguments)
    code, printed, _ = rbac(GET, arguments=WRITE)
    (missing,) = lines_with(printed, "leases")
    assert code == 2
    assert missing == (
        "missing: create leases.coordination.k8s.io in namespace system, for the operator: leader election: "
        "add it to a Role"
    )


def test_compared_role_without_namespace_is_in_that_of_the_deployment(rbac: Run, sdk: Path, tmp_path: Path) -> None:
    role = sdk.parent / "leader_election_role.yaml"
    role.write_text(
        ELECTION.replace(
            "rules: [",
            "rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, update], "
            "resourceNames: [demo]}, ",
        ).replace("[get, create, update]", "[create]")
    )
    deploy(tmp_path, f"args: [{ELECTS}]")
    _, printed, _ = rbac(GET, arguments=("--compare", str(sdk.parent)))
    assert lines_with(printed, "leases") == []


@pytest.mark.usefixtures("sdk")
def test_flags_of_another_lease_count_instead_of_the_deployment(rbac: Run, tmp_path: Path) -> None:
    deploy(tmp_path, f"args: [{ELECTS}]")
    code, printed, _ = rbac(GET, arguments=(*WRITE, "--leader-election", "elsewhere/other"))
    assert code == 0
    assert lines_with(printed, "missing:") == []


def test_metrics_with_authentication_need_reviews(rbac: Run, sdk: Path, tmp_path: Path) -> None:
    (sdk.parent / "metrics_auth.yaml").write_text(AUTH)
    deploy(tmp_path, "args: [--metrics-bind-address=:8443]")
    _, printed, _ = rbac(GET, arguments=WRITE)
    assert len(lines_with(printed, "too much:", "reviews")) == 2
    deploy(tmp_path, "args: [--metrics-bind-address=:8443, --metrics-secure, --metrics-require-rbac]")
    code, printed, _ = rbac(GET, arguments=WRITE)
    assert (code, lines_with(printed, "reviews")) == (0, [])
    (sdk.parent / "metrics_auth.yaml").unlink()
    code, printed, _ = rbac(GET, arguments=WRITE)
    assert code == 2
    assert [line.rpartition(": ")[2] for line in lines_with(printed, "missing:")] == ["add it to a ClusterRole"] * 2


def test_component_counts_if_it_is_used_or_compared(
    rbac: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--domain", "example.com", "web"]) == 0
    monkeypatch.chdir(tmp_path / "web")
    assert main(["create", "api", "--group", "demo", "--version", "v1", "--kind", "Demo"]) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web" / "deploy").rename(tmp_path / "deploy")
    capsys.readouterr()
    compare = ("--compare", "deploy/rbac")
    component = ("--compare", "deploy/components/shards")
    _, printed, _ = rbac(GET, arguments=compare)
    assert lines_with(printed, "leases") == []
    _, printed, _ = rbac(GET, arguments=(*compare, *component))
    assert lines_with(printed, "leases") == []
    kustomization = tmp_path / "deploy/kustomization.yaml"
    kustomization.write_text(f"{kustomization.read_text()}components: [components/shards]\n")
    _, printed, _ = rbac(GET, arguments=compare)
    assert lines_with(printed, "missing:", "leases") == []  # the component's role grants it


SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.parametrize(
    ("watch", "path", "is_wide"),
    [
        ("", f"{SECRETS}/changing", False),
        ("watchReads: true", f"{SECRETS}/changing", True),
        ("watchReads: true", f"{SECRETS}/literal", False),
        ("watchReads: true\n  blacklist: [{version: v1, kind: Secret}]", f"{SECRETS}/changing", False),
        ("", SECRETS, True),
    ],
)
def test_permission_to_read_all_secrets_is_reported(
    rbac: Run, sdk: Path, watch: str, path: str, *, is_wide: bool
) -> None:
    _, printed, _ = rbac(exchange("GET", path), arguments=WRITE, content=f"role: demo\n  {watch}")
    assert len(lines_with(printed, "all Secrets: ", ", for ")) == is_wide
    assert len(lines_with(printed, "narrower: ", "blacklist", "resourceNames")) == is_wide
    assert ("can read every Secret" in sdk.read_text()) is is_wide
    _, printed, _ = rbac(exchange("GET", path), content=f"role: demo\n  {watch}")
    assert ("can read every Secret" in printed) is is_wide
