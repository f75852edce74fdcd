import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rolecall.kube.references import GVK
from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.config.watches import ReferenceType, Watch, load_watches, parse_watches
from rolecall.runner.config.yaml_reader import ConfigurationError

MISTAKES = Path(__file__).parent / "watches"
THING = GVK("test.rolecall.dev", "v1", "Thing")
ENTRY = "- group: test.rolecall.dev\n  version: v1\n  kind: Thing\n  role: thing\n"
FIRST = "entry 1 (kind Thing), key"

EXPECTED = {
    "artifacts_are_a_boolean": f"{FIRST} maxRunnerArtifacts: expected an integer, found bool True",
    "artifacts_are_no_number": f"{FIRST} maxRunnerArtifacts: expected an integer, found str 'many'",
    "blacklist_is_a_mapping": f"{FIRST} blacklist: expected a list, found a mapping",
    "blacklist_without_kind": f"{FIRST} blacklist[1].kind: invalid GVK: /v1, Kind=: kind must not be empty",
    "boolean_is_a_number": f"{FIRST} markUnsafe: expected true or false, found int 1",
    "boolean_is_no_boolean": f"{FIRST} manageStatus: expected true or false, found str 'perhaps'",
    "duplicate_kind": "entry 2 (kind Thing), key kind: duplicate GVK: test.rolecall.dev/v1, Kind=Thing",
    "entry_is_no_mapping": "entry 2: expected a mapping, found str 'Thing'",
    "finalizer_is_a_text": f"{FIRST} finalizer: expected a mapping, found str 'test.rolecall.dev/finalizer'",
    "finalizer_with_unknown_role": (
        f"{FIRST} finalizer.role: role: nowhere not found (looked for DIRECTORY/roles/nowhere, DIRECTORY/nowhere)"
    ),
    "finalizer_without_content": f"{FIRST} finalizer.role: must specify Role or Playbook, or vars",
    "finalizer_without_name": f"{FIRST} finalizer.name: finalizer must have name",
    "kind_is_a_list": "entry 1 (kind ['Thing']), key kind: expected a string, found a list",
    "neither_role_nor_playbook": f"{FIRST} role: must specify Role or Playbook",
    "no_kind": "entry 1, key kind: invalid GVK: test.rolecall.dev/v1, Kind=: kind must not be empty",
    "no_version": f"{FIRST} version: invalid GVK: test.rolecall.dev/, Kind=Thing: version must not be empty",
    "not_a_list": "expected a list of entries, found a mapping",
    "period_is_negative": f"{FIRST} reconcilePeriod: a duration cannot be negative: '-15s'",
    "period_is_no_duration": (
        f"{FIRST} reconcilePeriod: not a duration: 'soon'"
        " (expected a number with a unit, for example 500ms, 15s or 1h30m)"
    ),
    "period_without_unit": (
        f"{FIRST} reconcilePeriod: expected a duration with a unit such as 15s or 1m30s, found int 15"
    ),
    "playbook_is_a_folder": f"{FIRST} playbook: playbook: DIRECTORY/roles not found",
    "selector_is_a_text": f"{FIRST} selector: expected a mapping, found str 'tier=web'",
    "selector_with_unknown_operator": (
        f"{FIRST} selector: error constructing predicate from watches selector:"
        " matchExpressions[0].operator: expected one of In, NotIn, Exists, DoesNotExist, found 'Like'"
    ),
    "status_is_a_list": f"{FIRST} status: expected a mapping, found a list",
    "status_with_bad_path": f"{FIRST} status.pods: not a JSONPath: '$.stats..' (Parse error near the end of string!)",
    "status_without_path": f"{FIRST} status.pods: expected a JSONPath, found None",
    "timeout_is_no_duration": (
        f"{FIRST} timeout: not a duration: '5 minutes' (expected a number with a unit, for example 500ms, 15s or 1h30m)"
    ),
    "trigger_fields_bad_path": (
        f"{FIRST} triggers[0].fields: not a JSONPath: '$.status[?' (Parse error near the end of string!)"
    ),
    "trigger_fields_is_a_text": f"{FIRST} triggers[0].fields: expected a list, found str '$.status.phase'",
    "trigger_with_bad_path": (
        f"{FIRST} triggers[0].labels: not a JSONPath: '$.spec[' (Parse error near the end of string!)"
    ),
    "trigger_with_owner_no_boolean": f"{FIRST} triggers[0].owner: expected true or false, found str 'me'",
    "trigger_with_two_ties": (
        f"{FIRST} triggers[0].owner: expected exactly one of owner, labels and name, found owner and name"
    ),
    "trigger_without_a_tie": (f"{FIRST} triggers[0].owner: expected exactly one of owner, labels and name, found none"),
    "trigger_without_kind": f"{FIRST} triggers[0].kind: invalid GVK: /v1, Kind=: kind must not be empty",
    "triggers_are_a_mapping": f"{FIRST} triggers: expected a list, found a mapping",
    "unknown_playbook": f"{FIRST} playbook: playbook: DIRECTORY/nowhere.yml not found",
    "unknown_role": (f"{FIRST} role: role: nowhere not found (looked for DIRECTORY/roles/nowhere, DIRECTORY/nowhere)"),
    "variables_are_something_else": f"{FIRST} variables: expected all or declared, found 'some'",
    "variables_of_a_playbook": (
        f"{FIRST} variables: declared needs a role with argument specs, found the playbook DIRECTORY/thing.yml: use a "
        "role, or all"
    ),
    "variables_without_argument_specs": (
        f"{FIRST} variables: declared needs the role's argument specs: declare its variables in "
        "DIRECTORY/roles/thing/meta/argument_specs.yml, below argument_specs.main.options, or use all"
    ),
    "vars_are_a_list": f"{FIRST} vars: expected a mapping, found a list",
}


LINES = {
    "artifacts_are_a_boolean": 6,
    "artifacts_are_no_number": 6,
    "blacklist_is_a_mapping": 6,
    "blacklist_without_kind": 9,
    "boolean_is_a_number": 6,
    "boolean_is_no_boolean": 6,
    "duplicate_kind": 8,
    "finalizer_is_a_text": 6,
    "finalizer_with_unknown_role": 8,
    "finalizer_without_content": 7,
    "finalizer_without_name": 7,
    "kind_is_a_list": 4,
    "neither_role_nor_playbook": 2,
    "no_kind": 2,
    "no_version": 2,
    "period_is_negative": 6,
    "period_is_no_duration": 6,
    "period_without_unit": 6,
    "playbook_is_a_folder": 5,
    "selector_is_a_text": 6,
    "selector_with_unknown_operator": 6,
    "status_is_a_list": 6,
    "status_with_bad_path": 7,
    "status_without_path": 7,
    "timeout_is_no_duration": 6,
    "trigger_fields_bad_path": 10,
    "trigger_fields_is_a_text": 10,
    "trigger_with_bad_path": 9,
    "trigger_with_owner_no_boolean": 9,
    "trigger_with_two_ties": 9,
    "trigger_without_a_tie": 7,
    "trigger_without_kind": 7,
    "triggers_are_a_mapping": 6,
    "unknown_playbook": 5,
    "unknown_role": 5,
    "variables_are_something_else": 6,
    "variables_of_a_playbook": 6,
    "variables_without_argument_specs": 6,
    "vars_are_a_list": 6,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a project with the role ``thing`` and a playbook of that name."""
    (tmp_path / "roles" / "thing").mkdir(parents=True)
    (tmp_path / "thing.yml").write_text("[]\n")
    return tmp_path


def load(directory: Path, text: str, **environment: str) -> tuple[Watch, ...]:
    """Load a watches.yaml with this text."""
    file = directory / "watches.yaml"
    file.write_text(text)
    return load_watches(file, environment, directory)


def load_entry(directory: Path, keys: str = "", **environment: str) -> Watch:
    """Load a single entry with further keys."""
    [watch] = load(directory, ENTRY + keys, **environment)
    return watch


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_mistake_is_one_line_with_file_entry_key_and_line(name: str, directory: Path) -> None:
    file = MISTAKES / f"{name}.yaml"
    with pytest.raises(ConfigurationError) as raised:
        load_watches(file, {}, directory)
    text = str(raised.value).replace(str(directory), "DIRECTORY")
    assert "\n" not in text
    assert re.findall(r" \(line (\d+)\)", text) == ([str(LINES[name])] if name in LINES else [])
    assert re.sub(r" \(line \d+\)", "", text) == f"{file}: {EXPECTED[name]}"


def test_every_file_of_mistakes_is_in_the_table() -> None:
    assert {file.stem for file in MISTAKES.iterdir()} == set(EXPECTED)


def test_text_that_is_not_yaml_is_one_line_with_its_place(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: .*line 2, column 10") as raised:
        load(directory, "- group: [a\n  version: v1\n  kind: A\n")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_text_is_an_error(directory: Path) -> None:
    (directory / "watches.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: "):
        load_watches(directory / "watches.yaml", {}, directory)


def test_a_missing_file_is_an_error_that_names_it(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.yaml: cannot be read: No such file or directory"):
        load_watches(directory / "nowhere.yaml", {}, directory)


@pytest.mark.parametrize("text", ["", "---\n", "[]\n", "# nothing yet\n"])
def test_an_empty_list_watches_nothing(directory: Path, text: str) -> None:
    assert load(directory, text) == ()


def test_only_the_first_document_counts(directory: Path) -> None:
    assert len(load(directory, f"---\n{ENTRY}---\nnot: a list\n")) == 1


def test_the_defaults_are_those_of_the_go_runner(directory: Path) -> None:
    watch = load_entry(directory)
    assert watch == Watch(THING, RoleContent(directory / "roles" / "thing"))
    assert watch.max_runner_artifacts == 20
    assert (watch.manage_status, watch.watch_dependent_resources, watch.snake_case_parameters) == (True, True, True)
    assert not watch.watch_cluster_scoped_resources
    assert not watch.watch_annotations_changes
    assert not watch.watch_reads
    assert (watch.ready_conditions, watch.stalled_after_seconds) == (None, None)
    assert not watch.mark_unsafe
    assert watch.reconcile_period_seconds is None
    assert watch.timeout_seconds is None
    assert watch.finalizer is None
    assert (watch.workers, watch.verbosity) == (None, None)


def test_every_key_is_read(directory: Path) -> None:
    watch = load_entry(
        directory,
        """
  vars: {Answer: 42}
  maxRunnerArtifacts: 3
  reconcilePeriod: 1m30s
  timeout: 500ms
  manageStatus: false
  watchDependentResources: false
  watchClusterScopedResources: true
  snakeCaseParameters: false
  watchAnnotationsChanges: true
  watchReads: true
  readyConditions: false
  stalledAfter: 0s
  markUnsafe: true
  blacklist: [{version: v1, kind: ConfigMap}]
  selector: {matchLabels: {tier: web}}
""",
    )
    assert watch.variables == {"Answer": 42}
    assert watch.max_runner_artifacts == 3
    assert watch.reconcile_period_seconds == 90
    assert watch.timeout_seconds == 0.5
    assert (watch.manage_status, watch.watch_dependent_resources, watch.snake_case_parameters) == (False, False, False)
    assert watch.watch_cluster_scoped_resources
    assert watch.watch_annotations_changes
    assert watch.watch_reads
    assert (watch.ready_conditions, watch.stalled_after_seconds) == (False, 0)
    assert watch.mark_unsafe
    assert watch.blacklist == {GVK("", "v1", "ConfigMap")}
    assert watch.selector.matches({"tier": "web"})
    assert not watch.selector.matches({"tier": "db"})


def test_a_period_of_nothing_leaves_it_to_the_flag(directory: Path) -> None:
    assert load_entry(directory, "  reconcilePeriod: 0s\n").reconcile_period_seconds is None


def test_no_artifacts_means_the_default_and_a_negative_number_all(directory: Path) -> None:
    assert load_entry(directory, "  maxRunnerArtifacts: 0\n").max_runner_artifacts == 20
    assert load_entry(directory, "  maxRunnerArtifacts: -1\n").max_runner_artifacts == -1


def test_keys_that_nobody_knows_are_told_of_and_do_no_harm(directory: Path) -> None:
    with capture_logs() as logs:
        assert load_entry(directory, "  maxWorkers: 4\n  description: [a, b]\n") == load_entry(directory)
    assert [line["log_level"] for line in logs] == ["warning", "warning"]
    assert "entry 1 (kind Thing), key maxWorkers (line 5): unknown key" in logs[0]["where"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "reconcilePeriode: 5s",
            "key reconcilePeriode (line 5): unknown key (ignored); did you mean 'reconcilePeriod'?",
        ),
        (
            "finalizer: {name: a/b, vars: {x: 1}, rol: thing}",
            "key finalizer.rol (line 5): unknown key (ignored); did you mean 'role'?",
        ),
        (
            "blacklist: [{version: v1, kind: Pod, name: x}]",
            "key blacklist[0].name (line 5): unknown key (ignored)",
        ),
        (
            "triggers: [{version: v1, kind: Pod, owner: true, field: []}]",
            "key triggers[0].field (line 5): unknown key (ignored); did you mean 'fields'?",
        ),
        (
            "selector: {matchLabel: {a: b}}",
            "key selector.matchLabel (line 5): unknown key (ignored); did you mean 'matchLabels'?",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one(directory: Path, keys: str, told: str) -> None:
    file = directory / "watches.yaml"
    file.write_text(f"{ENTRY}  {keys}\n")
    unknown = [str(key) for key in parse_watches(file, {}, directory).unknown_keys]
    assert unknown == [f"{file}: entry 1 (kind Thing), {told}"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("  role: thing\n", "key role (line 5): duplicate key, first in line 4"),
        ("  Role: thing\n", "key Role (line 5): is the same key as 'role'"),
        ("  vars:\n    a: 1\n    a: 2\n", "key vars.a (line 7): duplicate key, first in line 6"),
        ("  vars: {list: [{b: 1}, {b: 1, b: 2}]}\n", "key vars.list[1].b (line 5): duplicate key, first in line 5"),
        ("  finalizer: {name: a/b, name: a/b}\n", "key finalizer.name (line 5): duplicate key, first in line 5"),
    ],
)
def test_a_key_that_is_given_twice_is_a_mistake(directory: Path, keys: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_entry(directory, keys)
    assert str(raised.value) == f"{directory / 'watches.yaml'}: entry 1 (kind Thing), {told}"


def test_a_key_may_override_one_that_is_merged_in(directory: Path) -> None:
    text = ENTRY.replace("- group", "- &first\n  group") + "- {<<: *first, kind: Other, vars: {a: 1}}\n"
    assert [watch.gvk.kind for watch in load(directory, text)] == ["Thing", "Other"]


def test_workers_and_verbosity_of_a_kind_come_from_the_environment(directory: Path) -> None:
    watch = load_entry(
        directory,
        MAX_CONCURRENT_RECONCILES_THING_TEST_ROLECALL_DEV="3",
        ANSIBLE_VERBOSITY_THING_TEST_ROLECALL_DEV="0",
    )
    assert (watch.workers, watch.verbosity) == (3, 0)


def test_names_of_keys_match_in_any_case_at_every_depth(directory: Path) -> None:
    [watch] = load(
        directory,
        "- {GROUP: test.rolecall.dev, Version: v1, kInd: Thing, Role: thing, reconcileperiod: 5s,"
        " FINALIZER: {NAME: a/b, Vars: {Key: 1}}, BlackList: [{VERSION: v1, KIND: Pod}],"
        " Selector: {MATCHEXPRESSIONS: [{Key: a, OPERATOR: In, values: [b]}]}}\n",
    )
    assert watch.gvk == THING
    assert watch.reconcile_period_seconds == 5
    assert watch.finalizer is not None
    assert (watch.finalizer.name, watch.finalizer.variables) == ("a/b", {"Key": 1})
    assert watch.blacklist == {GVK("", "v1", "Pod")}
    assert watch.selector.matches({"a": "b"})
    assert not watch.selector.matches({"a": "c"})


@pytest.mark.parametrize("text", ["no", "No", "OFF", "n", "N", "false", "False"])
def test_booleans_are_those_of_yaml_1_1(directory: Path, text: str) -> None:
    assert load_entry(directory, f"  manageStatus: {text}\n").manage_status is False


@pytest.mark.parametrize("text", ["yes", "On", "y", "Y", "true", "True"])
def test_spellings_of_true_are_those_of_yaml_1_1(directory: Path, text: str) -> None:
    assert load_entry(directory, f"  markUnsafe: {text}\n").mark_unsafe is True


def test_a_number_for_a_text_is_written_out(directory: Path) -> None:
    [watch] = load(directory, "- {version: 1, kind: true, role: thing}\n")
    assert watch.gvk == GVK("", "1", "true")


def test_an_unquoted_date_stays_the_text_that_it_is(directory: Path) -> None:
    assert load_entry(directory, "  vars: {since: 2024-01-31}\n").variables == {"since": "2024-01-31"}
    [watch] = load(directory, "- {version: 2020-13-45, kind: A, role: thing}\n")
    assert watch.gvk.version == "2020-13-45"


def test_the_core_group_is_empty(directory: Path) -> None:
    [watch] = load(directory, "- {version: v1, kind: Secret, role: thing}\n")
    assert str(watch.gvk) == "/v1, Kind=Secret"


def test_the_same_kind_in_two_groups_or_versions_is_two_watches(directory: Path) -> None:
    text = "".join(f"- {{group: {group}, version: {version}, kind: A, role: thing}}\n" for group, version in GROUPS)
    assert [(watch.gvk.group, watch.gvk.version) for watch in load(directory, text)] == GROUPS


GROUPS = [("a.example.com", "v1"), ("b.example.com", "v1"), ("a.example.com", "v2")]


def test_variables_of_the_environment_are_expanded_before_parsing(directory: Path) -> None:
    watch = load_entry(directory, "  reconcilePeriod: ${PERIOD}\n  vars: $VARS\n", PERIOD="7s", VARS="{a: 1}")
    assert watch.reconcile_period_seconds == 7
    assert watch.variables == {"a": 1}


def test_the_playbook_wins_over_the_role(directory: Path) -> None:
    assert load_entry(directory, "  playbook: thing.yml\n").content == PlaybookContent(directory / "thing.yml")


def test_a_finalizer_runs_its_own_content_only_when_finalizing(directory: Path) -> None:
    watch = load_entry(directory, "  finalizer: {name: a/b, playbook: thing.yml}\n")
    assert watch.content_for(finalizing=True) == PlaybookContent(directory / "thing.yml")
    assert watch.content_for(finalizing=False) == watch.content == RoleContent(directory / "roles" / "thing")


def test_a_finalizer_with_nothing_but_vars_runs_the_main_content(directory: Path) -> None:
    watch = load_entry(directory, "  finalizer: {name: a/b, vars: {state: absent}}\n")
    assert watch.finalizer is not None
    assert watch.finalizer.variables == {"state": "absent"}
    assert watch.content_for(finalizing=True) == watch.content


def test_without_a_finalizer_everything_runs_the_main_content(directory: Path) -> None:
    watch = load_entry(directory)
    assert watch.content_for(finalizing=True) == watch.content


def test_triggers_are_read_with_their_tie_and_their_fields(directory: Path) -> None:
    by_labels, by_name, by_owner = load_entry(
        directory,
        """
  triggers:
    - {version: v1, kind: Pod, labels: $.spec.selector, fields: [$.status.phase, $.metadata.labels]}
    - {version: v1, kind: Secret, name: $.spec.secretName, owner: false}
    - {group: apps, version: v1, kind: Deployment, owner: yes}
""",
    ).triggers
    assert by_labels.gvk == GVK("", "v1", "Pod")
    assert by_labels.reference is ReferenceType.LABELS
    assert by_labels.path is not None
    assert by_labels.path.values({"spec": {"selector": {"app": "web"}}}) == [{"app": "web"}]
    assert [path.text for path in by_labels.fields] == ["$.status.phase", "$.metadata.labels"]
    assert by_name.reference is ReferenceType.NAME
    assert by_name.fields == ()
    assert (by_owner.gvk, by_owner.reference, by_owner.path) == (
        GVK("apps", "v1", "Deployment"),
        ReferenceType.OWNER,
        None,
    )


@pytest.mark.parametrize("text", ["no", "off"])
def test_a_trigger_by_owner_that_denies_it_is_no_trigger(directory: Path, text: str) -> None:
    keys = f"  triggers: [{{version: v1, kind: Pod, owner: '{text}'}}]\n"
    with pytest.raises(ConfigurationError, match=r"triggers\[0\].owner \(line 5\): expected true, found false"):
        load_entry(directory, keys)


def test_the_status_mapping_keeps_the_spelling_of_its_fields(directory: Path) -> None:
    watch = load_entry(directory, "  status: {readyPods: $.stats.ready}\n")
    assert list(watch.status) == ["readyPods"]
    assert [match.value for match in watch.status["readyPods"].find({"stats": {"ready": 2}})] == [2]


def test_roles_are_looked_for_from_the_working_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    (directory / "watches.yaml").write_text(ENTRY)
    [watch] = load_watches(Path("watches.yaml"), {})
    assert watch.content == RoleContent(directory / "roles" / "thing")


ENTRY_WORDS = st.sampled_from(
    ["- ", "kind: ", "version: v1", "role: thing", "vars: ", "{", "}", "[", "]", ", ", "\n", "\n  "]
)
ODD_WORDS = st.text("-:&*!|>'\"#%@`,?~<=.0123456789abyn$ \t\x00é", max_size=4)


@given(st.lists(ENTRY_WORDS | ODD_WORDS, max_size=30).map("".join))
def test_whatever_the_text_it_is_read_or_refused_with_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "watches.yaml"
        file.write_text(text)
        (Path(folder) / "thing").mkdir()
        told = refusal(file)
        assert told.startswith(str(file)) or not told
        assert "\n" not in told


def test_everything_that_is_wrong_is_found_in_one_reading(directory: Path) -> None:
    file = directory / "watches.yaml"
    file.write_text(
        f"{ENTRY}  timeout: 5\n"
        "  triggers: [{kind: Pod, name: '$.a[', fields: ['$[']}, {version: v1, kind: Pod, oner: true}]\n"
        "  status: {a: '$[', b: 1}\n- Thing\n- {version: v1, kind: Other, role: nowhere, vars: []}\n"
    )
    reading = parse_watches(file, {}, directory)
    assert [(error.key, error.line) for error in reading.errors] == [
        ("timeout", 5),
        ("triggers[0].version", 6),
        ("triggers[0].fields", 6),
        ("triggers[0].name", 6),
        ("triggers[1].owner", 6),
        ("status.a", 7),
        ("status.b", 7),
        ("", None),
        ("role", 9),
        ("vars", 9),
    ]
    assert [(key.key, key.line) for key in reading.unknown_keys] == [("triggers[1].oner", 6)]
    assert [watch.gvk.kind for watch in reading.watches] == ["Thing"]


def refusal(file: Path) -> str:
    """Return why a watches.yaml is refused, nothing when it is not."""
    return " and ".join(str(error) for error in parse_watches(file, {}, file.parent).errors)


@pytest.mark.parametrize("text", ["- &a [*a]", "- &a {kind: *a}", "- &a {version: v1, kind: A, role: thing, vars: *a}"])
def test_a_value_that_contains_itself_is_a_mistake(directory: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"invalid YAML: found unconstructable recursive node .* line 1"):
        load(directory, text)


@pytest.fixture
def _recursion_limit() -> Iterator[None]:
    """Give the interpreter its own limit, which an operator that ran in this process has raised."""
    raised = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(raised)


@pytest.mark.usefixtures("_recursion_limit")
def test_text_that_is_nested_too_deeply_is_a_mistake(directory: Path) -> None:
    levels = 500
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: it is nested too deeply"):
        load(directory, "[" * levels + "]" * levels)
