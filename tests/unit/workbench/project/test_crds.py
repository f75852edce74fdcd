from pathlib import Path

import pytest

from rolecall.runner.config.watches import load_watches
from rolecall.workbench.project.validate import CrdFiles, Severity
from tests.unit.workbench.project.projects import ARGUMENTS, CRD, ENTRY, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project whose role takes what the spec of its kind has."""
    write(tmp_path, meta__argument_specs=ARGUMENTS)
    return tmp_path


def warnings(project: Path, crd: str = CRD, keys: str = "") -> list[tuple[str, int | None, str]]:
    """Return what does not fit: the name of the file, the line, the message."""
    (project / "watches.yaml").write_text(ENTRY + keys)
    (project / "crd.yaml").write_text(crd)
    [watch] = load_watches(project / "watches.yaml", {}, project)
    found = list(CrdFiles.read([project / "crd.yaml"]).check(watch))
    assert {each.severity for each in found} <= {Severity.WARNING}
    return [(Path(each.file).name, each.line, each.message.replace(f"{project}/", "")) for each in found]


def test_arguments_that_are_the_spec_fit(project: Path) -> None:
    assert warnings(project) == []


def test_a_field_without_an_argument_is_told(project: Path) -> None:
    crd = CRD + "                shoeSizes: {type: array}\n"
    assert warnings(project, crd) == [
        (
            "crd.yaml",
            18,
            (
                "spec.shoeSizes is not an argument of the role: "
                "'shoe_sizes' is missing in roles/thing/meta/argument_specs.yml"
            ),
        )
    ]


def test_an_argument_without_a_field_is_told_unless_the_watch_sets_it(project: Path) -> None:
    write(project, meta__argument_specs=ARGUMENTS + "      laces: {}\n")
    assert warnings(project) == [
        ("argument_specs.yml", 6, "argument 'laces' is not a field of the spec of Thing in crd.yaml")
    ]
    assert warnings(project, keys="  vars: {laces: long}\n") == []


def test_another_type_is_told(project: Path) -> None:
    assert warnings(project, CRD.replace("integer", "boolean")) == [
        ("argument_specs.yml", 4, "spec.size has the type 'boolean': expected the type 'bool', found 'int'")
    ]


def test_an_argument_that_is_required_here_only_is_told(project: Path) -> None:
    crd = CRD.replace("required: [size]", "required: []")
    assert warnings(project, crd) == [("argument_specs.yml", 4, "the argument is required, but spec.size is not")]
    assert warnings(project, crd.replace("{type: integer}", "{type: integer, default: 1}")) == []


def test_names_stay_as_they_are_written_where_the_watch_says_so(project: Path) -> None:
    write(project, meta__argument_specs=ARGUMENTS.replace("shoe_colour", "shoeColour"))
    assert warnings(project, keys="  snakeCaseParameters: false\n") == []


def test_a_version_that_is_not_served_is_told(project: Path) -> None:
    assert warnings(project, CRD.replace("name: v1", "name: v2")) == [
        ("crd.yaml", 6, "the watched version 'v1' is not served; served: v2")
    ]


def test_a_missing_status_subresource_is_told_where_the_status_is_written(project: Path) -> None:
    crd = CRD.replace("      subresources: {status: {}}\n", "")
    assert warnings(project, crd) == [("crd.yaml", 7, "Thing has no status subresource, but manageStatus is true")]
    assert warnings(project, crd, "  manageStatus: false\n") == []


def test_other_kinds_and_other_documents_are_passed_over(project: Path) -> None:
    assert warnings(project, CRD.replace("kind: Thing", "kind: Other") + "---\nkind: List\n---\n- 1\n") == []


def test_a_file_that_is_no_yaml_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: b: c\n")
    [problem] = CrdFiles.read([tmp_path]).problems
    assert (problem.file, problem.line, problem.severity) == (str(tmp_path / "bad.yaml"), 1, Severity.ERROR)
