"""The discovery of an existing project's parts."""

from pathlib import Path

import pytest
import yaml
from bench.field_projects import NAMESPACE, Project, ProjectError, copied, manager, read_projects, with_own_flags

SAMPLE = {"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "one"}}


def write(directory: Path, files: dict[str, str]) -> None:
    """Write files below a directory."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project without a manager and without definitions."""
    write(tmp_path, {"sample.yaml": yaml.safe_dump(SAMPLE), "cases.yaml": cases(project=".", object="sample.yaml")})
    return tmp_path


def cases(**entry: object) -> str:
    """Return a file with one project."""
    return yaml.safe_dump([entry])


def manager_with(container: object) -> str:
    """Return the manifest of a manager's Deployment."""
    spec = {"template": {"spec": {"containers": [{"name": "rbac-proxy"}, container]}}}
    return "---\nkind: Namespace\n---\n" + yaml.safe_dump({"kind": "Deployment", "spec": spec})


def test_variables_and_arguments_come_from_image_and_manager(project: Path) -> None:
    variables = [
        {"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "FILE", "value": "watches.yaml"},
        {"name": "TEMPLATE", "value": "${IMAGE}"},
        {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}},
    ]
    arguments = ["--leader-elect", "--leader-election-id", "shop", "--watches-file=./$(FILE)"]
    write(
        project,
        {
            "config/manager/manager.yaml": manager_with({"name": "manager", "env": variables, "args": arguments}),
            "Dockerfile": 'FROM base\nENV COLOR=red OTHER="a b"\nENV MADE=${ARG}\n'
            'ENTRYPOINT ["/tini", "--", "ansible-operator", "run", \\\n "--reconcile-period=0s"]\n',
        },
    )
    given, found = manager(project, {"COLOR": "blue"})
    assert given == {"WATCH_NAMESPACE": NAMESPACE, "FILE": "watches.yaml", "COLOR": "blue", "OTHER": "a b"}
    assert found == ["--reconcile-period=0s", *arguments[:-1], "--watches-file=./watches.yaml"]


def test_container_of_the_newest_cluster_service_version_is_the_manager(project: Path) -> None:
    def version(value: str) -> str:
        containers = [{"name": "manager", "env": [{"name": "VERSION", "value": value}]}]
        deployment = {"spec": {"template": {"spec": {"containers": containers}}}}
        spec = {"install": {"spec": {"deployments": [deployment]}}}
        return yaml.safe_dump({"kind": "ClusterServiceVersion", "spec": spec})

    files = {f"manifests/{each}/shop.clusterserviceversion.yaml": version(each) for each in ("2.9.0", "2.10.0")}
    write(project, files)
    assert manager(project, {})[0]["VERSION"] == "2.10.0"


def test_definitions_are_applied_before_the_manifests_of_the_entry(project: Path) -> None:
    entry = {"project": ".", "object": "sample.yaml", "manifests": ["more.yaml"], "arguments": ["--a=b"]}
    write(project, {"config/crd/bases/shops.yaml": "", "more.yaml": "", "cases.yaml": cases(**entry)})
    (found,) = read_projects(project / "cases.yaml")
    assert found.manifests == [project / "config/crd/bases", project / "more.yaml"]
    assert (found.sample, found.arguments) == (SAMPLE, ["--a=b"])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"project": "missing"}, "missing: no such file or directory"),
        ({"object": "missing.yaml"}, "missing.yaml: expected a file with one object"),
        ({"object": "two.yaml"}, "two.yaml: expected a file with one object"),
        ({"manifests": ["missing.yaml"]}, "missing.yaml: no such file or directory"),
        ({"collections": "."}, "ansible_collections: no such file or directory"),
    ],
)
def test_missing_part_is_reported_with_its_place(project: Path, entry: dict[str, object], message: str) -> None:
    given = {"project": ".", "object": "sample.yaml", **entry}
    write(project, {"two.yaml": f"{SAMPLE}\n---\n{SAMPLE}\n", "cases.yaml": cases(**given)})
    with pytest.raises(ProjectError, match=message):
        list(read_projects(project / "cases.yaml"))


def test_paths_of_a_file_with_projects_are_relative_to_it(project: Path) -> None:
    write(project, {"sub/cases.yaml": cases(project="..", object="sample.yaml", name="shop")})
    (found,) = read_projects(project / "sub" / "cases.yaml")
    assert (found.directory, found.name) == (project.resolve(), "shop")


@pytest.mark.parametrize("text", ["{}", "- project: x", "- 1", "- {project: x, object: y, other: z}", "[}"])
def test_invalid_file_with_projects_is_rejected_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(text)
    with pytest.raises(ProjectError, match=r"cases\.yaml"):
        list(read_projects(file))


def test_copy_has_no_links_that_lead_out_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"home/.ansible.cfg": "the caller's", "project/file": "", "project/sub/file": ""})
    project = tmp_path / "project"
    for name, target in {
        ".ansible.cfg": tmp_path / "home/.ansible.cfg",
        ".ansible": tmp_path / "home",
        "sub/relative": Path("../../home/.ansible.cfg"),
        "dangling": tmp_path / "home/new",
        "first": Path("second"),
        "second": tmp_path / "home",
        "inside": Path("sub/file"),
    }.items():
        (project / name).symlink_to(target)
    copy = copied(project, tmp_path / "copy")
    assert [path.name for path in copy.rglob("*") if path.is_symlink()] == ["inside"]


def test_staged_project_changes_no_file_that_its_links_name(project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"home/.ansible.cfg": "the caller's", "home/.ansible/file": ""})
    source = tmp_path / "linked"
    source.mkdir()
    for name in (".ansible.cfg", ".ansible"):
        (source / name).symlink_to(tmp_path / "home" / name)
    Project("linked", source, SAMPLE, {}, collections=project).stage(tmp_path / "staged")
    assert (tmp_path / "home/.ansible.cfg").read_text() == "the caller's"
    assert [path.name for path in (tmp_path / "home/.ansible").iterdir()] == ["file"]
    assert (tmp_path / "staged/.ansible/collections").is_symlink()


@pytest.mark.parametrize(
    "flags",
    [
        ["--enable-leader-election"],
        ["--enable-leader-election=true"],
        ["--leader-elect"],
        ["--metrics-addr=127.0.0.1:8080", "--enable-leader-election"],
        ["--metrics-addr", "127.0.0.1:8080"],
        ["--metrics-bind-address=:8443", "--health-probe-bind-address", ":6789"],
        ["--metrics-addr"],
    ],
)
def test_each_flag_that_the_benchmark_sets_replaces_those_of_the_project_by_both_names(flags: list[str]) -> None:
    own = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false"]
    others = ["ansible-operator", "run", "--leader-election-id", "shop", "--v=2"]
    assert with_own_flags([*others, *flags]) == [*others, *own]
