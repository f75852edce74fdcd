"""The discovery of an existing project's parts."""

from pathlib import Path

import pytest
import yaml
from bench.field_projects import NAMESPACE, Case, ProjectError, read_cases

KINDS = {"Shop": "shop.example.com", "Till": "shop.example.com"}
SAMPLE = {"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "one"}}


def definition(kind: str) -> str:
    """Return as much of a CRD as discovery reads."""
    spec = {"group": KINDS[kind], "names": {"kind": kind}}
    return yaml.safe_dump({"kind": "CustomResourceDefinition", "metadata": {"name": kind}, "spec": spec})


def write(directory: Path, files: dict[str, str]) -> None:
    """Write files below a directory."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project without a manager and without definitions."""
    watch = {"group": "shop.example.com", "version": "v1", "kind": "Shop", "role": "shop"}
    write(tmp_path, {"watches.yaml": yaml.safe_dump([watch]), "sample.yaml": yaml.safe_dump(SAMPLE)})
    return tmp_path


def manager(container: object) -> str:
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
            "config/crd/bases/shops.yaml": definition("Shop"),
            "config/manager/manager.yaml": manager({"name": "manager", "env": variables, "args": arguments}),
            "Dockerfile": 'FROM base\nENV COLOR=red OTHER="a b"\nENV MADE=${ARG}\n'
            'ENTRYPOINT ["/tini", "--", "ansible-operator", "run", \\\n "--reconcile-period=0s"]\n',
        },
    )
    found = Case(project, Path("sample.yaml")).discover()
    assert found.variables == {"WATCH_NAMESPACE": NAMESPACE, "FILE": "watches.yaml", "COLOR": "red", "OTHER": "a b"}
    assert found.arguments == ("--reconcile-period=0s", "--watches-file=./watches.yaml")
    assert found.sample == SAMPLE


def test_container_of_the_newest_cluster_service_version_is_the_manager(project: Path) -> None:
    def version(value: str) -> str:
        containers = [{"name": "manager", "env": [{"name": "VERSION", "value": value}]}]
        deployment = {"spec": {"template": {"spec": {"containers": containers}}}}
        spec = {"install": {"spec": {"deployments": [deployment]}}}
        return yaml.safe_dump({"kind": "ClusterServiceVersion", "spec": spec})

    files = {f"manifests/{each}/shop.clusterserviceversion.yaml": version(each) for each in ("2.9.0", "2.10.0")}
    write(project, {"crds/shops.yaml": definition("Shop"), **files})
    assert Case(project, Path("sample.yaml")).discover().variables["VERSION"] == "2.10.0"


def test_definitions_come_from_the_directory_with_the_watched_kinds(project: Path) -> None:
    files = {"manifests/old/tills.yaml": definition("Till"), "other/shops.yaml": definition("Shop")}
    write(
        project, {**files, "other/tills.yaml": definition("Till"), "other/template.yaml": "{{ CustomResourceDefinition"}
    )
    found = Case(project, Path("sample.yaml")).discover().definitions
    assert [each["metadata"]["name"] for each in found] == ["Shop", "Till"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(Path("missing"), Path("sample.yaml")), "expected a project's directory"),
        (Case(Path(), Path("sample.yaml")), "no CustomResourceDefinition of Shop.shop.example.com"),
        (Case(Path(), Path("missing.yaml")), "no such file"),
        (Case(Path(), Path("watches.yaml")), "expected an object of a watched kind"),
        (Case(Path(), Path("sample.yaml"), watches="missing.yaml"), r"no such watches file \(found: watches.yaml\)"),
        (Case(Path(), Path("sample.yaml"), collections=Path("missing")), "no such file or directory"),
        (Case(Path(), Path("sample.yaml"), collections=Path()), "expected a directory ansible_collections"),
    ],
)
def test_missing_part_is_reported_with_its_place(
    project: Path, monkeypatch: pytest.MonkeyPatch, case: Case, message: str
) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(ProjectError, match=message):
        case.discover()


def test_paths_of_a_file_with_projects_are_relative_to_it(project: Path) -> None:
    write(project, {"sub/cases.yaml": yaml.safe_dump([{"project": "..", "object": "sample.yaml", "name": "shop"}])})
    (case,) = read_cases(project / "sub" / "cases.yaml")
    assert (case.project.resolve(), case.name) == (project.resolve(), "shop")


@pytest.mark.parametrize("text", ["{}", "- project: x", "- 1", "- {project: x, object: y, other: z}", "[}"])
def test_invalid_file_with_projects_is_rejected_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(text)
    with pytest.raises(ProjectError, match=r"cases\.yaml"):
        list(read_cases(file))
