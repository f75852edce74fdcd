"""After an edit of a role, ``rolecall validate`` names each file that describes the earlier one, with the fix."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.config.watches import parse_watches
from rolecall.workbench.project.problems import Problem, Severity
from rolecall.workbench.project.scaffold import NewKind, create_api, init_project
from rolecall.workbench.project.stale_files import ProjectFiles, check_stale_files
from rolecall.workbench.project.validate import CrdFiles

SPECS = """\
argument_specs:
  main:
    options:
      title: {type: str, required: true}
      max_replicas: {type: int, default: 2}
      pages:
        type: list
        elements: dict
        options:
          file_name: {type: str, required: true, aliases: [file]}
"""
TASKS = """\
- name: Keep the page
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: page}, data: {title: "{{ title }}"}}
- name: Report
  ansible.builtin.set_stats:
    data: {url: "https://{{ title }}"}
"""
SAMPLE = "deploy/samples/website.yaml"
RECORD = "tests/records/website.jsonl"
OLDER = "Replace it with a record of 'rolecall demo --record-dir DIR'"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new project with the kind Website, as the working directory."""
    monkeypatch.chdir(tmp_path)
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("apps", "v1", "Website")).write()
    return tmp_path


def edit(path: str, *changes: tuple[str, str]) -> None:
    """Replace texts in a file; each must be there."""
    text = Path(path).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path(path).write_text(text)


def edit_role() -> None:
    """Change the options, the tasks, and the results of the role."""
    Path("roles/website/meta/argument_specs.yml").write_text(SPECS)
    Path("roles/website/tasks/main.yml").write_text(TASKS)


def problems() -> list[Problem]:
    """Return the problems of the project."""
    watches = parse_watches(Path("watches.yaml"), {}).watches
    crds = CrdFiles.read([Path("deploy/crds")]).found
    found = list(check_stale_files(Path("watches.yaml"), watches, crds, ProjectFiles.found_in(Path()), {}))
    assert all(each.severity is Severity.WARNING for each in found)
    return [replace(each, file=each.file.removeprefix(f"{Path.cwd()}/")) for each in found]


def found() -> list[tuple[str, str, str]]:
    """Return the problems: file, the line that they are about, and text."""
    return [(each.file, _line(each), each.text) for each in problems()]


def _line(problem: Problem) -> str:
    return Path(problem.file).read_text().splitlines()[problem.line - 1].strip() if problem.line else ""


def of(file: str) -> list[str]:
    """Return the texts of the problems of a file."""
    return [each.text for each in problems() if each.file == file]


@pytest.mark.parametrize("options", [{}, {"is_namespaced": False}, {"with_playbook": True}])
def test_new_project_has_no_stale_files(project: Path, options: dict[str, Any]) -> None:
    create_api(project, NewKind("apps", "v1", "Cache", **options)).write()
    assert found() == []


def test_each_file_of_an_earlier_role_is_named() -> None:
    edit_role()
    no_option = "message isn't an option of the role website"
    no_result = "no task of the role website reports message with set_stats"
    sample = "Website website-sample/website-sample: spec"
    path, until = "the goal of Website has the path", "- {path: $.status.message, equals: $.spec.message}"
    column = "remove the column, or change its path"
    status = "apps.example.com/v1, Kind=Website, key status.message"
    crd, demo = "deploy/crds/websites.yaml", "demo.yaml"
    lacks = "lacks title, which the role website requires"
    expected = [
        ("watches.yaml", "message: $.stats.message", f"{status}: {no_result}: report it, or remove this key"),
        (
            "roles/website/defaults/main.yml",
            "message: Hello",
            f"{no_option}, and no file of the role uses it: remove it",
        ),
        (crd, "jsonPath: .spec.message", f"the column Message shows .spec.message, but {no_option}: {column}"),
        (crd, "jsonPath: .status.message", f"the column Written shows .status.message, but {no_result}: {column}"),
        (SAMPLE, "message: Hello from Website", f"{sample}.{no_option}: change the sample, or the role"),
        (SAMPLE, "message: Hello from Website", f"{sample} {lacks}: change the sample, or the role"),
        (demo, "columns:", f"{path} $.spec.message, but {no_option}: change the goal"),
        (demo, until, f"{path} $.status.message, but {no_result}: change the goal"),
        (demo, until, f"{path} $.spec.message, but {no_option}: change the goal"),
        (RECORD, "", f"records a run of an older role website: spec.{no_option}; spec {lacks}. {OLDER}"),
    ]
    assert found() == expected


def test_fixed_files_are_not_stale() -> None:
    edit_role()
    edit("watches.yaml", ("message: $.stats.message", "address: $.stats.url"))
    edit("deploy/crds/websites.yaml", (".spec.message", ".spec.maxReplicas"), (".status.message", ".status.address"))
    pages = "title: Hello\n  pages:\n    - {fileName: a}\n    - {file: b}"
    edit(SAMPLE, ("message: Hello from Website", pages))
    edit("demo.yaml", ("$.spec.message", "$.spec.title"), ("$.status.message", "$.status.address"))
    Path("roles/website/defaults/main.yml").write_text("max_replicas: 2\nlimit: 5\n")
    Path("roles/website/templates").mkdir()
    Path("roles/website/templates/page.j2").write_text("{{ limit }}")
    Path(RECORD).unlink()
    assert found() == []


def test_nested_options_are_compared() -> None:
    edit_role()
    edit(SAMPLE, ("message: Hello from Website", "title: Hello\n  pages: [{fileNames: a}]"))
    assert [text.partition(": ")[2] for text in of(SAMPLE)] == [
        "spec.pages.fileNames isn't an option of the role website: change the sample, or the role",
        "spec.pages lacks fileName, which the role website requires: change the sample, or the role",
    ]


def test_required_option_with_a_default_in_the_crd_may_be_missing() -> None:
    edit("roles/website/meta/argument_specs.yml", ("default: Hello", "required: true"))
    edit(SAMPLE, ("  message: Hello from Website", "  {}"))
    assert of(SAMPLE) == []
    edit("deploy/crds/websites.yaml", ("                  default: Hello\n", ""))
    assert [each.partition(": ")[2] for each in of(SAMPLE)] == [
        "spec lacks message, which the role website requires: change the sample, or the role"
    ]


def test_default_that_contradicts_the_argument_specs_is_named() -> None:
    edit("roles/website/meta/argument_specs.yml", ("default: Hello", "default: Hi"))
    Path("roles/website/defaults/main.yml").write_text("message: Hello\n")
    assert of("roles/website/defaults/main.yml") == [
        "message is 'Hello' here, but its default in the argument specs is 'Hi': make them equal"
    ]
    Path("roles/website/defaults/main.yml").write_text('message: "{{ greeting }}"\n')
    assert found() == []


def test_sample_of_an_unwatched_kind_is_named() -> None:
    create_api(Path(), NewKind("apps", "v1", "Cache")).write()
    entries = Path("watches.yaml").read_text()
    Path("watches.yaml").write_text(
        entries[: entries.index("- group: apps.example.com", entries.index("kind: Website"))]
    )
    cache = "the kind Cache of apps.example.com/v1"
    [sample] = of("deploy/samples/cache.yaml")
    assert sample == (
        f"Cache cache-sample/cache-sample: {cache} isn't in watches.yaml, so no role reconciles this sample: add the "
        "kind, or remove the sample"
    )
    assert of("demo.yaml") == [f"{cache} isn't in watches.yaml, so its goal has no effect: remove it"]
    assert of("tests/records/cache.jsonl") == [
        "records a run of Cache of apps.example.com/v1, which isn't in watches.yaml: remove the record"
    ]
    Path("deploy/crds/caches.yaml").unlink()
    assert len(of("deploy/samples/cache.yaml")) == 1  # its group is that of the project
    edit("deploy/samples/cache.yaml", ("apps.example.com/v1", "other.example.org/v1"))
    assert of("deploy/samples/cache.yaml") == []


def test_samples_of_projects_of_the_operator_sdk_are_compared() -> None:
    edit_role()
    shutil.copytree("deploy/samples", "config/samples")
    shutil.rmtree("deploy/samples")
    assert len(of("config/samples/website.yaml")) == 2


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ("- set_stats: {data: {message: x}}", 0),
        ("- block: [{ansible.builtin.set_stats: {data: {message: x}}}]", 0),
        ("- set_stats: {data: {other: x}}", 1),
        ("- debug: {msg: x} # no set_stats", 1),
        ("# set_stats\n- debug: {msg: x}", 1),
        ("- set_stats: {data: '{{ results }}'}", 0),
        ("- set_stats: {data: {'{{ name }}': x}}", 0),
        ("- action: set_stats data={{ results }}", 0),
        ("- include_role: {name: other}", 0),
        ("- import_role: {name: other}", 0),
        ("- debug: {msg: !unsafe x}", 0),
        ("- [", 0),
    ],
)
def test_results_are_judged_only_if_they_are_known(tasks: str, expected: int) -> None:
    Path("roles/website/tasks/main.yml").write_text(f"{tasks}\n")
    assert len(of("watches.yaml")) == expected


def test_readiness_from_a_missing_result_is_named() -> None:
    edit("watches.yaml", ("  status:\n", "  ready: $.stats.is_ready\n  status:\n"))
    no_result = "no task of the role website reports is_ready with set_stats: report it, or remove this key"
    key = "apps.example.com/v1, Kind=Website, key ready.value"
    assert found() == [("watches.yaml", "ready: $.stats.is_ready", f"{key}: {no_result}")]
    edit("watches.yaml", ("ready: $.stats.is_ready", "ready: {value: $.stats.message, reason: $.stats.why}"))
    assert [each.key for each in problems()] == ["ready.reason"]


def test_columns_of_a_status_that_tasks_write_are_not_judged() -> None:
    edit("deploy/crds/websites.yaml", (".status.message", ".status.other"))
    assert len(of("deploy/crds/websites.yaml")) == 1
    tasks = "- operator_sdk.util.k8s_status: {api_version: v1, kind: X, name: x, status: {other: 1}}\n"
    Path("roles/website/tasks/main.yml").write_text(tasks)
    assert of("deploy/crds/websites.yaml") == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "scope: Namespaced",
            "scope: Cluster",
            "its object is in the namespace website-sample, but Website is cluster-scoped",
        ),
        ("message: $.stats", "text: $.stats", "watches.yaml maps other results to the status (message, text)"),
    ],
)
def test_records_of_an_earlier_watch_are_named(old: str, new: str, reason: str) -> None:
    edit("deploy/crds/websites.yaml" if "scope" in old else "watches.yaml", (old, new))
    assert of(RECORD) == [f"records a run of an older role website: {reason}. {OLDER}"]


def test_unreadable_record_is_named() -> None:
    edit(RECORD, ("Hello", "Hullo"))
    [text] = of(RECORD)
    assert "website.jsonl" not in text


def test_role_without_argument_specs_takes_any_field() -> None:
    Path("roles/website/meta/argument_specs.yml").unlink()
    Path("roles/website/tasks/main.yml").write_text(TASKS)
    assert found() == []


def test_role_of_a_playbook_is_compared(project: Path) -> None:
    new = NewKind("apps", "v1", "Cache", with_role=True, with_playbook=True)
    create_api(project, new).write()
    assert found() == []
    Path("roles/cache/tasks/main.yml").write_text(TASKS)
    assert [each.key for each in problems() if each.file == "watches.yaml"] == ["status.message"]


def test_built_in_kinds_have_other_fields(project: Path) -> None:
    entry = "- {version: v1, group: apps, kind: ReplicaSet, role: website, manageStatus: false}\n"
    (project / "watches.yaml").write_text(entry)
    sample = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: a}\nspec: {replicas: 1}\n"
    (project / SAMPLE).write_text(sample)
    (project / "demo.yaml").write_text(
        "goals:\n- apiVersion: apps/v1\n  kind: ReplicaSet\n  until: [{path: $.spec.replicas, equals: 1}]\n"
    )
    (project / RECORD).unlink()
    assert found() == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        (SAMPLE, "a: [", "the sample can't be read: invalid YAML: "),
        (SAMPLE, "- 1\n--- 2\n--- {apiVersion: a/b/c, kind: X, metadata: 3}", ""),
        (SAMPLE, "{apiVersion: apps.example.com/v1, kind: Website, metadata: [], spec: [1]}", ""),
        (
            "demo.yaml",
            "goals: [1, {kind: Website, apiVersion: [], until: 3, columns: 4}]",
            "the kind Website of [] isn't in",
        ),
        ("demo.yaml", "samples: [deploy/nowhere, 3]", ""),
        ("roles/website/defaults/main.yml", "- 1", ""),
        ("roles/website/defaults/main.yml", "a: b: c", ""),
        ("roles/website/tasks/main.yml", "- [1, {set_stats: [1]}, {set_stats: }]", ""),
        (RECORD, "{}", "not the head of a record"),
    ],
)
def test_invalid_files_do_not_end_the_check(path: str, text: str, problem: str) -> None:
    Path(path).write_text(text)
    found = of(path)
    assert [text for text in found if problem not in text] == []
    assert bool(found) is bool(problem)
