import re
from pathlib import Path

import pytest

from rolecall.runner.config.watches import load_watches
from rolecall.workbench.project.problems import Problem, Severity
from rolecall.workbench.project.validate import CrdFiles, validate
from tests import CORE
from tests.unit.workbench.project.projects import ARGUMENTS, CRD, ENTRY, since_2_19, write

BROKEN_TASK = "- nothing_of_the_kind: {}\n"
DEBUG = "- ansible.builtin.debug: {msg: x}\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project in which nothing is wrong, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "watches.yaml").write_text(ENTRY)
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds/things.yaml").write_text(CRD)
    write(tmp_path, tasks__main=DEBUG, meta__argument_specs=ARGUMENTS)
    return tmp_path


def found(**variables: str) -> list[tuple[str, int | None, str]]:
    """Return the problems of the project: file, line, text."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **variables}
    problems = validate(Path("watches.yaml"), environment, [Path("crds")]).problems
    return [(each.file, each.line, each.text) for each in problems]


def test_nothing_is_wrong_with_a_project_that_is_right() -> None:
    assert found() == []


def test_everything_that_is_wrong_is_told_at_once(project: Path) -> None:
    (project / "watches.yaml").write_text(
        ENTRY + "  reconcilePerod: 5s\n  timeout: 5\n- {version: v1, kind: Other, role: nowhere}\n"
    )
    write(
        project,
        tasks__main="- ansible.builtin.debg: {}\n- kubernetes.core.k8s: {}\n  whenn: true\n- include_tasks: gone.yml\n",
        tasks__sometimes="- block:\n    - no.such.module: {}\n  rescue:\n    - debug: {}\n      command: ls\n",
        defaults__main="a: b: c\n",
        handlers__main="name: x\n",
        meta__argument_specs=ARGUMENTS.replace("type: str", "type: strong, requird: true"),
    )
    unresolved = "This often indicates a misspelling, missing collection, or incorrect module path."
    missing = "The collection no.such is not installed: run 'ansible-galaxy collection install no.such'."
    colon = "Colons in unquoted values must be followed by a non-space character"
    if CORE < (2, 19):
        colon = "mapping values are not allowed in this context"
    types = "bits, bool, bytes, dict, float, int, json, jsonarg, list, path, raw, str"
    assert found() == [
        (
            "watches.yaml",
            5,
            ("entry 1 (kind Thing), key reconcilePerod: unknown key (ignored); did you mean 'reconcilePeriod'?"),
        ),
        (
            "watches.yaml",
            6,
            "entry 1 (kind Thing), key timeout: expected a duration with a unit such as 15s or 1m30s, found int 5",
        ),
        (
            "watches.yaml",
            7,
            (
                "entry 2 (kind Other), key role: role: nowhere not found (looked for roles/nowhere, nowhere), so its "
                "tasks were not checked"
            ),
        ),
        ("roles/thing/defaults/main.yml", 1, f"YAML parsing failed: {colon}."),
        ("roles/thing/handlers/main.yml", 1, "expected a list of tasks, found a mapping"),
        (
            "roles/thing/meta/argument_specs.yml",
            5,
            ("argument_specs.main.options.shoe_colour.requird: unknown key (ignored); did you mean 'required'?"),
        ),
        (
            "roles/thing/meta/argument_specs.yml",
            5,
            f"argument_specs.main.options.shoe_colour: type: expected one of {types}, found 'strong'",
        ),
        ("roles/thing/tasks/main.yml", 1, f"couldn't resolve module/action 'ansible.builtin.debg'. {unresolved}"),
        ("roles/thing/tasks/main.yml", 2, "conflicting action statements: kubernetes.core.k8s, whenn"),
        ("roles/thing/tasks/main.yml", 4, "included file not found: 'gone.yml'"),
        (
            "roles/thing/tasks/sometimes.yml",
            2,
            f"couldn't resolve module/action 'no.such.module'. {unresolved} {missing}",
        ),
        (
            "roles/thing/tasks/sometimes.yml",
            4,
            "conflicting action statements: debug, command",
        ),
    ]


def test_finalizer_with_selector_is_a_warning(project: Path) -> None:
    """Another operator may use the same name."""
    finalizer, selector = "  finalizer: {name: a.b/c, vars: {x: 1}}\n", "  selector: {matchLabels: {team: a}}\n"
    (project / "watches.yaml").write_text(ENTRY + finalizer)
    assert found() == []
    (project / "watches.yaml").write_text(ENTRY + finalizer + selector)
    [(_, _, text)] = found()
    assert "operators with the finalizer a.b/c need disjoint selectors" in text


def test_managed_status_of_a_built_in_kind_is_reported(project: Path) -> None:
    (project / "watches.yaml").write_text("- {version: v1, kind: Pod, role: thing}\n")
    [(file, line, text)] = found()
    assert (file, line) == ("watches.yaml", 1)
    assert text.startswith("/v1, Kind=Pod, key manageStatus: Kubernetes manages the status of Pod")
    (project / "watches.yaml").write_text("- {version: v1, kind: Pod, role: thing, manageStatus: false}\n")
    assert found() == []


@pytest.mark.parametrize("second", ["v1", "v2", "v2\n  selector: {matchLabels: {a: b}}"])
def test_a_group_and_kind_that_is_watched_twice_is_an_error_with_both_lines(project: Path, second: str) -> None:
    other = ENTRY.replace("test.rolecall.dev", "other.dev")
    (project / "watches.yaml").write_text(ENTRY + other + ENTRY.replace("v1", second))
    [(line, text)] = [(line, text) for file, line, text in found() if file == "watches.yaml"]
    assert line == 11 + second.count("\n")
    assert "key kind: " in text
    assert "in line 1" in text


TAKEN = {
    "ours": "- rolecall.util.requeue_after: {time: 5s}\n- operator_sdk.util.k8s_status: {}\n",
    "chosen": "- action: '{{ chosen }}'\n",
    "included": "- include_tasks: '{{ chosen }}.yml'\n- include_tasks: {file: more.yml}\n- import_tasks: more.yml\n",
    "ended": "- ansible.builtin.meta: end_role\n",
    "own": "- own: {}\n",
    "vault": "- debug:\n    msg: !vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      6162\n",
}


def test_valid_input_of_a_run_is_accepted(project: Path) -> None:
    entries = [f"- {{group: example.com, version: v1, kind: {role.title()}, role: {role}}}\n" for role in TAKEN]
    (project / "watches.yaml").write_text(ENTRY + "".join(entries))
    for role, tasks in TAKEN.items():
        place = project / "roles" / role
        for directory in ("tasks", "vars", "library"):
            (place / directory).mkdir(parents=True)
        (place / "tasks/main.yml").write_text(tasks)
        (place / "tasks/more.yml").write_text(DEBUG)
        (place / "vars/hidden.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
        (place / "library/own.py").write_text("from ansible.module_utils.basic import AnsibleModule\n")
    assert found() == []


def test_a_role_needs_tasks_unless_it_depends_on_another(project: Path) -> None:
    (project / "roles/thing/tasks/main.yml").unlink()
    assert found() == [("roles/thing/tasks", None, "the role has no tasks: expected tasks/main.yml")]
    (project / "roles/other/tasks").mkdir(parents=True)
    (project / "roles/other/tasks/main.yml").write_text(DEBUG)
    write(project, meta__main="dependencies: [other]\n")
    assert found() == []
    write(project, meta__main="dependencies: [another]\n")
    [(_, _, message)] = found()
    assert "role 'another' was not found" in message


def use_playbook(project: Path, text: str, name: str = "site.yml") -> None:
    """Let the entry name a playbook."""
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)
    (project / "watches.yaml").write_text(ENTRY.replace("role: thing", f"playbook: {name}"))


def test_a_playbook_is_read_where_it_lies(project: Path) -> None:
    (project / "tasks.yml").write_text("- nothing_of_the_kind: {}\n")
    tasks = "- include_tasks: tasks.yml\n    - include_tasks: gone.yml\n    - debug: {}\n      wen: true\n"
    use_playbook(project, f"- hosts: localhost\n  tasks:\n    {tasks}")
    assert [(file, line, re.split(r"\.| in:? ", text)[0].lower()) for file, line, text in found()] == [
        ("site.yml", 4, "included file not found: 'gone"),
        ("site.yml", 5, "conflicting action statements: debug, wen"),
        ("tasks.yml", 1, "couldn't resolve module/action 'nothing_of_the_kind'"),
    ]


def test_plugins_and_collections_beside_a_playbook_are_found(project: Path) -> None:
    use_playbook(project, "- hosts: localhost\n  tasks:\n    - own: {}\n    - a.b.other: {}\n", "playbooks/site.yml")
    for directory in ("library/own", "collections/ansible_collections/a/b/plugins/modules/other"):
        module = project / "playbooks" / f"{directory}.py"
        module.parent.mkdir(parents=True)
        module.write_text("from ansible.module_utils.basic import AnsibleModule\n")
    assert found() == []


def test_a_playbook_finds_the_roles_of_the_project(project: Path) -> None:
    use_playbook(project, "- hosts: localhost\n  roles: [thing, gone]\n", "playbooks/site.yml")
    [(file, line, text)] = found()
    assert (file, line) == ("playbooks/site.yml", 2)
    assert re.match("[Tt]he role 'gone' was not found in:? playbooks/roles:.*:roles:playbooks$", text)


def test_a_playbook_finds_a_role_first_where_the_user_says(project: Path) -> None:
    (project / "mine/thing/tasks").mkdir(parents=True)
    (project / "mine/thing/tasks/main.yml").write_text("- nothing_of_the_kind: {}\n")
    use_playbook(project, "- hosts: localhost\n  roles: [thing]\n", "playbooks/site.yml")
    assert [(file, line) for file, line, _ in found(ANSIBLE_ROLES_PATH="mine")] == [("mine/thing/tasks/main.yml", 1)]


def test_a_role_finds_others_only_beside_itself_as_in_a_run(project: Path) -> None:
    for name, tasks in (("elsewhere/first", "[]\n"), ("roles/other", DEBUG)):
        (project / name / "tasks").mkdir(parents=True)
        (project / name / "tasks/main.yml").write_text(tasks)
    (project / "elsewhere/first/meta").mkdir()
    (project / "elsewhere/first/meta/main.yml").write_text("dependencies: [other]\n")
    (project / "watches.yaml").write_text(ENTRY.replace("role: thing", f"role: {project}/elsewhere/first"))
    [(_, _, text)] = found()
    assert "he role 'other' was not found" in text  # "The" or "the", by the version of ansible-core


def test_a_role_of_a_finalizer_is_read_too(project: Path) -> None:
    (project / "watches.yaml").write_text(ENTRY + "  finalizer: {name: a/b, role: last}\n")
    (project / "roles/last/tasks").mkdir(parents=True)
    (project / "roles/last/tasks/main.yml").write_text("- nothing_of_the_kind: {}\n")
    assert [(file, line) for file, line, _ in found()] == [("roles/last/tasks/main.yml", 1)]


def test_a_watches_file_that_cannot_be_read_is_one_problem(project: Path) -> None:
    (project / "watches.yaml").write_text("- kind: 'Thing\n")
    [(file, line, text)] = found()
    assert (file, line) == ("watches.yaml", 2)
    assert text.startswith("invalid YAML")
    (project / "watches.yaml").unlink()
    assert found() == [("watches.yaml", None, "cannot be read: No such file or directory")]


def test_a_problem_names_its_place_so_that_it_can_be_opened() -> None:
    problem = Problem("a.yaml", 3, "wrong", Severity.WARNING, "entry 1", "b")
    assert (problem.place, problem.text) == ("a.yaml:3", "entry 1, key b: wrong")
    assert Problem("a.yaml", None, "wrong").place == "a.yaml"


BROKEN_CONDITION = "- ansible.builtin.debug: {msg: x}\n  when:\n    - x is defined\n    - x | length\n"


def warnings(**variables: str) -> list[tuple[str, int | None, str]]:
    """Return the warnings of the project: file, line, text; there must be no error."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **variables}
    problems = validate(Path("watches.yaml"), environment, [Path("crds")]).problems
    assert all(each.severity is Severity.WARNING for each in problems), problems
    return [(each.file, each.line, each.text) for each in problems]


@since_2_19
def test_a_condition_that_cannot_be_boolean_is_a_warning_with_its_line(project: Path) -> None:
    write(project, tasks__main=BROKEN_CONDITION)
    [(file, line, text)] = warnings()
    assert (file, line) == ("roles/thing/tasks/main.yml", 4)
    assert text.startswith(
        "when: the result of 'x | length' can be an integer; compare it, as in '… > 0'. With ansible-"
    )
    assert "ANSIBLE_ALLOW_BROKEN_CONDITIONALS=true" in text


@since_2_19
@pytest.mark.parametrize("is_config", [False, True])
def test_an_accepted_condition_is_still_a_warning_that_names_its_end(
    project: Path, tmp_path: Path, *, is_config: bool
) -> None:
    write(project, tasks__main=BROKEN_CONDITION)
    (tmp_path / "own.cfg").write_text("[defaults]\nallow_broken_conditionals = true\n")
    config, variable = {"ANSIBLE_CONFIG": str(tmp_path / "own.cfg")}, {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"}
    [(_, _, text)] = warnings(**(config if is_config else variable))
    assert "accepts this because of ALLOW_BROKEN_CONDITIONALS, which ends with 2.23" in text


@since_2_19
def test_conditions_are_found_in_every_role_that_a_role_uses(project: Path) -> None:
    write(
        project,
        tasks__main="- include_role: {name: listed}\n- include_role: {name: '{{ item }}'}\n  loop: [looped]\n"
        "- block:\n    - include_tasks: more.yml\n  when: x | length\n- include_role: {name: '{{ unknown }}'}\n",
        tasks__more=BROKEN_CONDITION,
        handlers__main=BROKEN_CONDITION,
        meta__main="dependencies: [needed, {role: required}]\n",
    )
    for name in ("listed", "looped", "needed", "required"):
        (project / f"roles/{name}/tasks").mkdir(parents=True)
        (project / f"roles/{name}/tasks/main.yml").write_text(BROKEN_CONDITION)
    found = {(file.removeprefix("roles/"), line) for file, line, _ in warnings()}
    others = {(f"{name}/tasks/main.yml", 4) for name in ("listed", "looped", "needed", "required")}
    assert found == {("thing/tasks/main.yml", 6), ("thing/tasks/more.yml", 4), ("thing/handlers/main.yml", 4), *others}


@since_2_19
def test_conditions_of_a_play_and_of_its_roles_are_found(project: Path) -> None:
    (project / "watches.yaml").write_text(ENTRY.replace("role: thing", "playbook: site.yml"))
    (project / "site.yml").write_text(
        "- hosts: localhost\n  roles:\n    - role: thing\n      when: x | length\n"
        "  tasks:\n    - ansible.builtin.assert:\n        that: x | length\n"
    )
    assert [(file, line) for file, line, _ in warnings()] == [("site.yml", 4), ("site.yml", 7)]


@since_2_19
@pytest.mark.parametrize(("release", "count"), [("4.0.0", 1), ("5.2.0", 1), ("5.3.0", 0), ("6.2.0", 0)])
def test_a_template_that_an_old_kubernetes_core_does_not_render_is_a_warning(
    project: Path, release: str, count: int
) -> None:
    collection = project / "collections/ansible_collections/kubernetes/core"
    (collection / "plugins/modules").mkdir(parents=True)
    (collection / "plugins/modules/k8s.py").write_text("")
    (collection / "MANIFEST.json").write_text(f'{{"collection_info": {{"version": "{release}"}}}}')
    write(project, tasks__main="- kubernetes.core.k8s:\n    template: pod.yaml.j2\n")
    found = warnings(ANSIBLE_COLLECTIONS_PATH=str(project / "collections"))
    assert [(file, line) for file, line, _ in found] == [("roles/thing/tasks/main.yml", 2)] * count
    assert all(f"kubernetes.core {release} " in text and "5.3.0 or newer" in text for _, _, text in found)


@since_2_19
def test_a_dictionary_written_as_text_is_a_warning(project: Path) -> None:
    write(
        project,
        tasks__main="""\
- ansible.builtin.set_fact:
    converted: "{ 'url': '{{ x }}' }"
    json: '{ "url": "{{ x }}" }'
    expression: "{{ {'url': x} }}"
    plain: "{ 'url': 'x' }"
    words: "{a} {{ x }}"
""",
    )
    [(file, line, text)] = warnings()
    assert (file, line) == ("roles/thing/tasks/main.yml", 2)
    assert text.startswith("converted: ansible-core ")


FIELDS = "                size: {type: integer}\n"


def add_fields(project: Path, *fields: str) -> None:
    """Add fields to the spec of the kind, in the CRD only; the role has no argument specs."""
    text = "".join(f"                {field}\n" for field in fields)
    (project / "crds/things.yaml").write_text(CRD.replace(FIELDS, FIELDS + text))
    (project / "roles/thing/meta/argument_specs.yml").unlink(missing_ok=True)


def test_fields_whose_variables_ansible_overrides_are_warnings(project: Path) -> None:
    add_fields(project, "environment: {type: object}", "ansibleConfig: {type: string}", "roleName: {type: string}")
    assert [(file, line, text.partition(":")[0]) for file, line, text in warnings()] == [
        ("crds/things.yaml", 21, "spec.environment"),
        ("crds/things.yaml", 22, "spec.ansibleConfig"),
        ("crds/things.yaml", 23, "spec.roleName"),
    ]
    entry = ENTRY + "  snakeCaseParameters: false\n  allowVariables: [ansibleConfig]\n  vars: {groups: 1}\n"
    (project / "watches.yaml").write_text(entry)
    found = [(file, line) for file, line, _ in warnings()]
    assert found == [("watches.yaml", 1), ("crds/things.yaml", 21)]


def test_a_declared_variable_that_ansible_overrides_is_a_warning_at_the_role_too(project: Path) -> None:
    add_fields(project, "groups: {type: string}", "hostvars: {type: string}")
    arguments = "argument_specs: {main: {options: {size: {type: int, required: true}, shoe_colour: {}, groups: {}}}}\n"
    write(project, meta__argument_specs=arguments)
    (project / "watches.yaml").write_text(ENTRY + "  variables: declared\n")
    found = [(file, line) for file, line, text in warnings() if "overrides" in text]
    assert found == [("crds/things.yaml", 21), ("roles/thing/meta/argument_specs.yml", 1)]


LOSING = "- ansible.builtin.command: id\n  register: shoe_colour\n- ansible.builtin.set_fact:\n    mode: a\n"


def test_variables_of_a_role_that_lose_against_fields_are_warnings_with_their_lines(project: Path) -> None:
    write(project, tasks__main=LOSING)
    [(file, line, text)] = warnings()
    assert (file, line) == ("roles/thing/tasks/main.yml", 2)
    assert text.startswith("register: shoe_colour is lost if it is set by the field spec.shoeColour of Thing")
    (project / "watches.yaml").write_text(ENTRY + "  vars: {mode: b}\n")
    assert [text.partition(" is lost")[0] for _, _, text in warnings()] == [
        "register: shoe_colour",
        "ansible.builtin.set_fact: mode",
    ]
    write(project, meta__argument_specs=ARGUMENTS.replace("shoe_colour", "shoe_size"))
    (project / "watches.yaml").write_text(ENTRY + "  variables: declared\n")
    assert not [text for _, _, text in warnings() if " is lost" in text]


def test_variables_that_a_play_passes_to_a_role_and_lose_are_warnings(project: Path) -> None:
    roles = "[{role: thing, size: 1, tags: a}, {role: thing, vars: {shoe_colour: red}}]"
    use_playbook(project, f"- hosts: localhost\n  vars: {{size: 1}}\n  roles: {roles}\n")
    (project / "roles/thing/meta/argument_specs.yml").unlink()
    assert [(file, line, text.partition(" is lost")[0]) for file, line, text in warnings()] == [
        ("site.yml", 3, "vars: shoe_colour"),
        ("site.yml", 3, "vars: size"),
    ]


def test_a_role_of_two_kinds_is_checked_with_the_fields_of_each(project: Path) -> None:
    write(project, tasks__main="- block:\n" + "".join(f"    {line}\n" for line in LOSING.splitlines()))
    other = CRD.replace("kind: Thing", "kind: Other").replace("shoeColour", "mode")
    (project / "crds/others.yaml").write_text(other)
    (project / "watches.yaml").write_text(ENTRY + ENTRY.replace("Thing", "Other"))
    (project / "roles/thing/meta/argument_specs.yml").unlink()
    assert [(line, text.rpartition("set by ")[2].partition(":")[0]) for _, line, text in warnings()] == [
        (3, "the field spec.shoeColour of Thing"),
        (5, "the field spec.mode of Other"),
    ]


def test_values_whose_type_the_crd_rejects_are_warnings_with_their_lines(project: Path) -> None:
    definition = "apiVersion: test.rolecall.dev/v1\n      kind: Thing\n      spec:\n        "
    head = f"- kubernetes.core.k8s:\n    definition:\n      {definition}"
    write(project, tasks__main=f"{head}size: '{{{{ x | string }}}}'\n        shoeColour: '{{{{ x | string }}}}'\n")
    (project / "roles/thing/templates").mkdir()
    (project / "roles/thing/templates/thing.yml.j2").write_text(
        "apiVersion: test.rolecall.dev/v1\nkind: Thing\nspec:\n  shoeColour: {{ x | length }}\n"
    )
    found = [(file, line, text.partition(":")[0]) for file, line, text in warnings()]
    in_template = ("roles/thing/templates/thing.yml.j2", 4, "spec.shoeColour")
    in_task = [("roles/thing/tasks/main.yml", 6, "spec.size")] if CORE >= (2, 19) else []
    assert found == [*in_task, in_template]


def test_a_module_that_cannot_be_imported_is_an_error_at_the_task(project: Path) -> None:
    plugins = project / "collections/ansible_collections/a/b/plugins"
    for name, text in {"modules": "import gone_from_python", "action": "", "module_utils": ""}.items():
        (plugins / name).mkdir(parents=True)
        (plugins / name / "old.py").write_text(text)
    (plugins / "modules/new.py").write_text("raise SystemExit(1)")
    (plugins / "modules/sick.py").write_text("from ansible_collections.a.b.plugins.module_utils import none")
    (plugins / "action/new.py").write_text("import os")
    write(project, tasks__main="- a.b.new: {}\n- a.b.old: {}\n- block:\n    - a.b.sick: {}\n")
    found_ = found(ANSIBLE_COLLECTIONS_PATH=str(project / "collections"))
    assert [line for _, line, _ in found_] == [2, 4]
    assert all(file == "roles/thing/tasks/main.yml" for file, _, _ in found_)
    assert re.match(
        r"a\.b\.old can't be imported with Python 3\.\d+: ModuleNotFoundError: .*gone_from_pyt", found_[0][2]
    )
    assert "a release of the collection a.b" in found_[0][2]


def test_paths_of_the_image_are_checked_in_the_checkout(project: Path) -> None:
    write(project, tasks__main="- include_tasks: /opt/ansible/roles/thing/tasks/more.yml\n", tasks__more=BROKEN_TASK)
    play = "- hosts: localhost\n  roles: [/opt/ansible/roles/thing]\n"
    (project / "site.yml").write_text(play)
    (project / "watches.yaml").write_text(
        ENTRY.replace("role: thing", "playbook: /opt/ansible/site.yml")
        + "# role: /opt/ansible/roles/thing\n"
        + ENTRY.replace("Thing", "Other").replace("role: thing", "role: /opt/ansible/roles/gone")
    )
    first, second, third = found()
    assert first[:2] == ("watches.yaml", 4)
    assert first[2].startswith("/opt/ansible/site.yml exists only in an image")
    assert second[:2] == ("watches.yaml", 9)
    assert second[2].endswith("not found (looked for /opt/ansible/roles/gone), so its tasks were not checked")
    assert third[:2] == ("roles/thing/tasks/more.yml", 1)


def test_the_status_schema_is_compared_with_the_line_of_the_crd(project: Path) -> None:
    status = "status: {type: object, x-kubernetes-preserve-unknown-fields: true}"
    assert status in CRD
    strict = "status: {type: object, properties: {phase: {type: string}}}"
    (project / "crds/things.yaml").write_text(CRD.replace(status, strict))
    [(file, line, text)] = warnings()
    assert (file, line) == ("crds/things.yaml", 15)
    assert "drops status.conditions of Thing" in text


@pytest.fixture
def crds_project(tmp_path: Path) -> Path:
    """Return a project whose role takes what the spec of its kind has."""
    write(tmp_path, meta__argument_specs=ARGUMENTS)
    return tmp_path


def crds_warnings(crds_project: Path, crd: str = CRD, keys: str = "") -> list[tuple[str, int | None, str]]:
    """Return the problems: file name, line, and message."""
    (crds_project / "watches.yaml").write_text(ENTRY + keys)
    (crds_project / "crd.yaml").write_text(crd)
    [watch] = load_watches(crds_project / "watches.yaml", {}, crds_project)
    found = list(CrdFiles.read([crds_project / "crd.yaml"]).check(watch, {}))
    assert {each.severity for each in found} <= {Severity.WARNING}
    return [(Path(each.file).name, each.line, each.message.replace(f"{crds_project}/", "")) for each in found]


def test_arguments_that_are_the_spec_fit(crds_project: Path) -> None:
    assert crds_warnings(crds_project) == []


def test_field_without_argument_is_told(crds_project: Path) -> None:
    crd = CRD + "                shoeSizes: {type: array}\n"
    assert crds_warnings(crds_project, crd) == [
        (
            "crd.yaml",
            20,
            "spec.shoeSizes: the role has no argument 'shoe_sizes': remove the field, or declare the argument",
        )
    ]


def test_difference_to_the_arguments_is_told_with_the_command(crds_project: Path) -> None:
    write(crds_project, meta__argument_specs=ARGUMENTS + "      laces: {}\n")
    text = "spec.laces differs from the role's arguments (new field of type string): run 'rolecall generate crds'"
    assert crds_warnings(crds_project) == [("crd.yaml", 20, text)]
    assert crds_warnings(crds_project, keys="  vars: {laces: long}\n") == []


def test_names_stay_as_they_are_written_where_the_watch_says_so(crds_project: Path) -> None:
    write(crds_project, meta__argument_specs=ARGUMENTS.replace("shoe_colour", "shoeColour"))
    assert crds_warnings(crds_project, keys="  snakeCaseParameters: false\n") == []


def test_a_version_that_is_not_served_is_told(crds_project: Path) -> None:
    assert crds_warnings(crds_project, CRD.replace("name: v1", "name: v2")) == [
        ("crd.yaml", 6, "the watched version 'v1' is not served; served: v2")
    ]


def test_a_missing_status_subresource_is_told_where_the_status_is_written(crds_project: Path) -> None:
    crd = CRD.replace("      subresources: {status: {}}\n", "")
    assert crds_warnings(crds_project, crd) == [
        ("crd.yaml", 7, "Thing has no status subresource, but manageStatus is true")
    ]
    assert crds_warnings(crds_project, crd, "  manageStatus: false\n") == []


def test_other_kinds_and_other_documents_are_passed_over(crds_project: Path) -> None:
    assert crds_warnings(crds_project, CRD.replace("kind: Thing", "kind: Other") + "---\nkind: List\n---\n- 1\n") == []


def test_a_file_that_is_no_yaml_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: b: c\n")
    [problem] = CrdFiles.read([tmp_path]).problems
    assert (problem.file, problem.line, problem.severity) == (str(tmp_path / "bad.yaml"), 1, Severity.ERROR)
