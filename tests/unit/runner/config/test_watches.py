import json
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
from rolecall.runner.config.watches import Finalizer, ReferenceType, Watch, load_watches, parse_watches
from rolecall.runner.config.yaml_reader import ConfigurationError

INVALID = Path(__file__).parent / "watches"
THING = GVK("test.rolecall.dev", "v1", "Thing")
ENTRY = "- group: test.rolecall.dev\n  version: v1\n  kind: Thing\n  role: thing\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a project with the role ``thing`` and a playbook of that name."""
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


@pytest.mark.parametrize("file", sorted(INVALID.iterdir()), ids=lambda file: file.stem)
def test_error_is_one_line_with_file_entry_key_and_line(file: Path, directory: Path) -> None:
    """Each file has the expected error in its last lines."""
    comments = [line.removeprefix("# ") for line in file.read_text().splitlines() if line.startswith("# ")]
    with pytest.raises(ConfigurationError) as raised:
        load_watches(file, {}, directory)
    assert str(raised.value).replace(str(directory), "DIRECTORY") == f"{file}: {' '.join(comments)}"


def test_invalid_yaml_is_one_line_with_its_place(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: .*line 2, column 10") as raised:
        load(directory, "- group: [a\n  version: v1\n  kind: A\n")
    assert "\n" not in str(raised.value)


def test_binary_file_is_an_error(directory: Path) -> None:
    (directory / "watches.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: "):
        load_watches(directory / "watches.yaml", {}, directory)


def test_missing_file_is_an_error_with_its_name(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.yaml: cannot be read: No such file or directory"):
        load_watches(directory / "nowhere.yaml", {}, directory)


@pytest.mark.parametrize("text", ["", "---\n", "[]\n", "# nothing yet\n"])
def test_an_empty_list_watches_nothing(directory: Path, text: str) -> None:
    assert load(directory, text) == ()


def test_only_the_first_document_counts(directory: Path) -> None:
    assert len(load(directory, f"---\n{ENTRY}---\nnot: a list\n")) == 1


def test_defaults_are_those_of_the_go_runner(directory: Path) -> None:
    watch = load_entry(directory)
    assert watch == Watch(THING, RoleContent(directory / "roles" / "thing"))
    assert watch.max_runner_artifacts == 20
    assert (watch.manage_status, watch.watch_dependent_resources, watch.snake_case_parameters) == (True, True, True)
    unset = (watch.watch_cluster_scoped_resources, watch.watch_annotations_changes, watch.watch_reads)
    assert unset == (False, False, False)
    flags = (watch.ready_conditions, watch.mark_unsafe, watch.reconcile_period_seconds, watch.timeout_seconds)
    assert flags == (None, None, None, None)
    assert (watch.stalled_after_seconds, watch.finalizer, watch.workers, watch.verbosity) == (None, None, None, None)


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
""",
    )
    assert watch == Watch(
        THING,
        RoleContent(directory / "roles" / "thing"),
        variables={"Answer": 42},
        max_runner_artifacts=3,
        reconcile_period_seconds=90,
        timeout_seconds=0.5,
        manage_status=False,
        watch_dependent_resources=False,
        watch_cluster_scoped_resources=True,
        snake_case_parameters=False,
        watch_annotations_changes=True,
        watch_reads=True,
        ready_conditions=False,
        stalled_after_seconds=0,
        mark_unsafe=True,
        blacklist=frozenset({GVK("", "v1", "ConfigMap")}),
    )


def test_zero_means_the_default(directory: Path) -> None:
    assert load_entry(directory, "  reconcilePeriod: 0s\n").reconcile_period_seconds is None
    assert load_entry(directory, "  maxRunnerArtifacts: 0\n").max_runner_artifacts == 20
    assert load_entry(directory, "  maxRunnerArtifacts: -1\n").max_runner_artifacts == -1


def test_unknown_keys_are_logged_and_ignored(directory: Path) -> None:
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
            "ready: {value: $.a, reasons: $.b}",
            "key ready.reasons (line 5): unknown key (ignored); did you mean 'reason'?",
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
def test_unknown_key_is_reported_with_its_line_and_the_nearest_known_key(directory: Path, keys: str, told: str) -> None:
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
def test_duplicate_key_is_an_error(directory: Path, keys: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_entry(directory, keys)
    assert str(raised.value) == f"{directory / 'watches.yaml'}: entry 1 (kind Thing), {told}"


@pytest.mark.parametrize("name", ["a b", "a/b/c", f"example.com/{'x' * 64}", "Example.com/x"])
def test_finalizer_that_the_api_server_rejects_is_an_error(directory: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"key finalizer.name \(line 5\): expected"):
        load_entry(directory, f"  finalizer: {{name: '{name}', vars: {{a: 1}}}}\n")


@pytest.mark.parametrize(
    ("key", "value"),
    [("group", "Example.com"), ("group", "a/b"), ("version", "1"), ("version", "v1/x"), ("kind", "A b"), ("kind", "É")],
)
def test_kind_that_the_api_server_cannot_serve_is_an_error(directory: Path, key: str, value: str) -> None:
    gvk = {"group": "example.com", "version": "v1", "kind": "Other"} | {key: value}
    with pytest.raises(ConfigurationError, match=rf"key blacklist\[0\].{key} \(line 5\): .*expected"):
        load_entry(directory, f"  blacklist: [{json.dumps(gvk)}]\n")


def test_key_can_override_a_merged_key(directory: Path) -> None:
    text = ENTRY.replace("- group", "- &first\n  group") + "- {<<: *first, kind: Other, vars: {a: 1}}\n"
    assert [watch.gvk.kind for watch in load(directory, text)] == ["Thing", "Other"]


def test_workers_and_verbosity_come_from_the_environment(directory: Path) -> None:
    watch = load_entry(
        directory,
        MAX_CONCURRENT_RECONCILES_THING_TEST_ROLECALL_DEV="3",
        ANSIBLE_VERBOSITY_THING_TEST_ROLECALL_DEV="0",
    )
    assert (watch.workers, watch.verbosity) == (3, 0)


def test_keys_match_in_any_case_at_every_depth(directory: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, False) for text in ("no", "No", "OFF", "n", "N", "false", "False")),
        *((text, True) for text in ("yes", "On", "y", "Y", "true", "True")),
    ],
)
def test_booleans_are_those_of_yaml_1_1(directory: Path, text: str, *, value: bool) -> None:
    watch = load_entry(directory, f"  manageStatus: {text}\n  markUnsafe: {text}\n")
    assert (watch.manage_status, watch.mark_unsafe) == (value, value)


def test_unquoted_date_stays_a_string(directory: Path) -> None:
    assert load_entry(directory, "  vars: {since: 2024-01-31}\n").variables == {"since": "2024-01-31"}
    with pytest.raises(ConfigurationError, match="invalid GVK: /2020-13-45, Kind=A: expected"):
        load(directory, "- {version: 2020-13-45, kind: A, role: thing}\n")


def test_the_core_group_is_empty(directory: Path) -> None:
    [watch] = load(directory, "- {version: v1, kind: Secret, role: thing}\n")
    assert str(watch.gvk) == "/v1, Kind=Secret"


def test_kind_in_two_groups_is_two_watches(directory: Path) -> None:
    text = "".join(f"- {{group: {group}, version: {version}, kind: A, role: thing}}\n" for group, version in GROUPS)
    assert [(watch.gvk.group, watch.gvk.version) for watch in load(directory, text)] == GROUPS


GROUPS = [("a.example.com", "v1"), ("b.example.com", "v1")]


@pytest.mark.parametrize("second", ["v2", "v1beta1"])
def test_two_versions_of_a_kind_are_rejected(directory: Path, second: str) -> None:
    """They are the same objects, of which each would have two runs at the same time."""
    entries = "".join(f"- {{group: a.example.com, version: {v}, kind: A, role: thing}}\n" for v in ("v1", second))
    with pytest.raises(ConfigurationError, match=r"entry 2 .*line 2.*watches this kind in version v1: keep one entry"):
        load(directory, entries)


def test_environment_variables_are_expanded_before_parsing(directory: Path) -> None:
    watch = load_entry(directory, "  reconcilePeriod: ${PERIOD}\n  vars: $VARS\n", PERIOD="7s", VARS="{a: 1}")
    assert watch.reconcile_period_seconds == 7
    assert watch.variables == {"a": 1}


def test_finalizer_runs_its_own_content_or_the_main_one(directory: Path) -> None:
    main = RoleContent(directory / "roles" / "thing")
    own = load_entry(directory, "  finalizer: {name: a/b, playbook: thing.yml}\n")
    assert own.content_for(finalizing=True) == PlaybookContent(directory / "thing.yml")
    assert own.content_for(finalizing=False) == own.content == main
    with_vars = load_entry(directory, "  finalizer: {name: a/b, vars: {state: absent}}\n")
    assert with_vars.finalizer == Finalizer("a/b", None, {"state": "absent"})
    assert with_vars.content_for(finalizing=True) == main
    assert load_entry(directory).content_for(finalizing=True) == main


def test_triggers_are_read_with_reference_and_fields(directory: Path) -> None:
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
def test_trigger_with_owner_false_is_rejected(directory: Path, text: str) -> None:
    keys = f"  triggers: [{{version: v1, kind: Pod, owner: '{text}'}}]\n"
    with pytest.raises(ConfigurationError, match=r"triggers\[0\].owner \(line 5\): expected true, found false"):
        load_entry(directory, keys)


def test_status_mapping_keeps_the_spelling_of_its_fields(directory: Path) -> None:
    watch = load_entry(directory, "  status: {readyPods: $.stats.ready}\n")
    assert list(watch.status) == ["readyPods"]
    assert watch.status["readyPods"].values({"stats": {"ready": 2}}) == [2]


def test_ready_is_a_jsonpath(directory: Path) -> None:
    ready = load_entry(directory, "  ready: $.stats.is_ready\n").ready
    assert ready["value"].values({"stats": {"is_ready": False}}) == [False]
    assert list(ready) == ["value"]


@pytest.mark.parametrize(
    "names", [["value"], ["value", "reason"], ["value", "message"], ["value", "reason", "message"]]
)
def test_ready_has_a_reason_and_a_message(directory: Path, names: list[str]) -> None:
    keys = "".join(f"    {name.title()}: $.stats.{name}\n" for name in names)
    ready = load_entry(directory, f"  ready:\n{keys}").ready
    assert {name: path.values({"stats": {name: 1}}) for name, path in ready.items()} == {name: [1] for name in names}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("  ready: $.stats..\n", r"key ready \(line 5\): not a JSONPath: '\$.stats..'"),
        ("  ready: true\n", r"key ready \(line 5\): expected a JSONPath, found bool True"),
        ("  ready: [$.a]\n", r"key ready \(line 5\): expected a JSONPath, found a list"),
        ("  ready: {}\n", r"key ready.value \(line 5\): expected a JSONPath, found nothing"),
        ("  ready:\n    reason: $.a\n", r"key ready.value \(line 5\): expected a JSONPath, found nothing"),
        ("  ready:\n    value: $.a\n    reason: 3\n", r"key ready.reason \(line 7\): expected a JSONPath, found int 3"),
        ("  ready:\n    value: $.a\n    message: $..\n", r"key ready.message \(line 7\): not a JSONPath: '\$..'"),
        ("  manageStatus: no\n  ready: {value: $.a}\n", r"ready \(line 6\): has no effect, because manageStatus"),
        ("  manageStatus: no\n  ready: $.a\n", r"ready \(line 6\): has no effect, because manageStatus is false"),
        ("  ready: $.a\n  readyConditions: off\n", r"ready \(line 5\): has no effect, because readyConditions is"),
    ],
)
def test_ready_without_effect_is_an_error(directory: Path, keys: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_entry(directory, keys)


ENTRY_WORDS = st.sampled_from(
    ["- ", "kind: ", "version: v1", "role: thing", "vars: ", "{", "}", "[", "]", ", ", "\n", "\n  "]
)
ODD_WORDS = st.text("-:&*!|>'\"#%@`,?~<=.0123456789abyn$ \t\x00é", max_size=4)


@given(st.lists(ENTRY_WORDS | ODD_WORDS, max_size=30).map("".join))
def test_any_text_is_read_or_rejected_with_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "watches.yaml"
        file.write_text(text)
        (Path(directory) / "thing").mkdir()
        told = rejection(file)
        assert told.startswith(str(file)) or not told
        assert "\n" not in told


def test_all_errors_are_found_in_one_pass(directory: Path) -> None:
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


def rejection(file: Path) -> str:
    """Return the errors of a watches.yaml, or an empty string."""
    return " and ".join(str(error) for error in parse_watches(file, {}, file.parent).errors)


@pytest.mark.parametrize("text", ["- &a [*a]", "- &a {kind: *a}", "- &a {version: v1, kind: A, role: thing, vars: *a}"])
def test_value_that_contains_itself_is_an_error(directory: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"invalid YAML: found unconstructable recursive node .* line 1"):
        load(directory, text)


@pytest.fixture
def _recursion_limit() -> Iterator[None]:
    """Restore the default limit, which an operator in this process has raised."""
    raised = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(raised)


@pytest.mark.usefixtures("_recursion_limit")
def test_deeply_nested_text_is_an_error(directory: Path) -> None:
    levels = 500
    with pytest.raises(ConfigurationError, match=r"watches.yaml: invalid YAML: it is nested too deeply"):
        load(directory, "[" * levels + "]" * levels)
