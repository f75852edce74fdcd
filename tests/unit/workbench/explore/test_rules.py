"""Each rule has symptoms with a task, a place without indexes, and a remedy."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.comparison.end_states import Difference, EndObject, EndState, ObjectId
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.explore.rules import (
    Rule,
    Settled,
    deletion_of,
    differences,
    failure_of,
    is_kept,
    names_in,
    noise_of,
    normal,
    schema_rule,
    symptom_of,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)
TASK = TaskName("web : Write", "/p/roles/web/tasks/main.yml:4")
SHOP = ObjectId("example.com", "v1", "shops", ObjectKey("default", "shop"))
PLURALS = {"Service": "services", "ConfigMap": "configmaps", "Shop": "shops", "Job": "jobs"}


def end_of(*objects: tuple[str, dict[str, Any]]) -> EndState:
    """Return an end state with objects of these kinds, named like their kind."""
    found = {}
    for kind, content in objects:
        ident = SHOP if kind == "Shop" else ObjectId("", "v1", PLURALS[kind], ObjectKey("default", kind.lower()))
        found[ident] = EndObject(GVK("", "v1", kind), ident.key, {"metadata": {}, **content})
    return found


def settled(end: EndState, **given: Any) -> Settled:
    """Return a settled object."""
    return Settled(end, NOW, 1.0, **given)


def test_additional_object_remains_and_names_its_task() -> None:
    found = symptom_of(
        Difference("Secret default/tls", found="additional"),
        Rule.FRESH,
        {("Secret default/tls", ""): TASK},
        prunes=False,
    )
    assert (found.task, found.text) == (TASK, "Secret default/tls remains")
    assert "state: absent" in found.remedy


def test_difference_in_a_field_names_the_task_that_wrote_it_and_not_the_last_one_of_the_object() -> None:
    other = TaskName("web : Write size", "/p/roles/web/tasks/main.yml:9")
    writers = {("Pod a/b", ""): other, ("Pod a/b", "spec.containers.env.name"): TASK}
    found, elsewhere = (
        symptom_of(Difference("Pod a/b", path, "", "x"), Rule.FRESH, writers, prunes=False)
        for path in ("spec.containers[1].env[0].name", "spec.nodeName")
    )
    assert (found.task, elsewhere.task) == (TASK, other)


def test_remedy_of_a_role_that_prunes_is_the_annotation_in_the_definition() -> None:
    found = symptom_of(Difference("Secret default/tls", found="additional"), Rule.FRESH, {}, prunes=True)
    assert found.remedy == 'write rolecall.dev/prune: "true" into its definition'


def test_symptoms_of_two_indexes_are_one_finding() -> None:
    one, two = (
        symptom_of(
            Difference("Pod a/b", f"spec.containers[{index}].env[1].name", "", "x"), Rule.FRESH, {}, prunes=False
        )
        for index in (0, 3)
    )
    assert one.key == two.key
    assert "keeps x" in one.text


def test_return_and_fresh_are_one_finding() -> None:
    one, two = (symptom_of(Difference("Pod a/b", found="missing"), each, {}, prunes=False) for each in list(Rule)[:2])
    assert (one.rule, two.rule) == (Rule.FRESH, Rule.RETURN)
    assert one.key == two.key


def test_time_that_an_earlier_edit_wrote_is_no_difference() -> None:
    fresh, old, older = (
        end_of(("ConfigMap", {"data": {"written": each}}))
        for each in ("2026-11-01T00:00:00Z", "2026-10-31T23:50:00Z", "2026-10-31T22:00:00Z")
    )
    found = [
        differences(settled(fresh), settled(fresh), settled(each, age_seconds=700.0), frozenset(), str)
        for each in (old, older)
    ]
    assert [len(each) for each in found] == [0, 1]


def test_allocated_fields_and_notes_of_the_operator_are_never_compared() -> None:
    service = {"spec": {"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}}
    conditions = [{"type": "Successful"}, {"type": "Custom"}]
    shop = {
        "metadata": {"annotations": {"rolecall.dev/inventory": "x"}},
        "status": {"conditions": conditions, "observedGeneration": 4, "pods": 2},
    }
    found = normal(end_of(("Service", service), ("Shop", shop)), SHOP)
    assert [each.content for each in found.values()] == [
        {"metadata": {}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}},
        {"metadata": {}, "status": {"conditions": [{"type": "Custom"}], "pods": 2}},
    ]


def test_uid_of_an_owner_is_never_compared_but_its_name_is() -> None:
    owner = {"kind": "Shop", "name": "shop", "uid": "1", "controller": True}
    [found] = normal(end_of(("ConfigMap", {"metadata": {"ownerReferences": [owner]}})), SHOP).values()
    assert found.content["metadata"]["ownerReferences"] == [{"kind": "Shop", "name": "shop", "controller": True}]


def test_headless_service_is_compared() -> None:
    [found] = normal(end_of(("Service", {"spec": {"clusterIP": "None"}})), SHOP).values()
    assert found.content["spec"] == {"clusterIP": "None"}


def test_values_that_differ_in_two_fresh_objects_are_no_difference() -> None:
    one, two, three = (
        settled(end_of(("ConfigMap", {"data": {"password": text, "size": size}})))
        for text, size in (("one-secret", "1"), ("two-secret", "1"), ("three-secret", "2"))
    )
    found = differences(one, two, three, frozenset(), str)
    assert [each.path for each in found] == ["data.size"]
    assert differences(one, two, three, frozenset({"ConfigMap default/configmap data.size"}), str) == []


def test_what_every_run_changes_in_one_object_counts_in_another_one() -> None:
    one, two = (
        settled(end_of(("ConfigMap", {"data": {"size": size}}), ("Service", {"data": {"size": size}})))
        for size in ("1", "2")
    )
    found = differences(one, one, two, frozenset({"ConfigMap default/configmap data.size"}), str)
    assert [each.subject for each in found] == ["Service default/service"]


def test_objects_that_roles_keep_are_kept() -> None:
    assert is_kept(Difference("Job default/job", found="additional"))
    assert not is_kept(Difference("ConfigMap default/job", found="additional"))


def test_failure_of_a_fresh_object_is_a_missing_rule_of_the_schema() -> None:
    failed = settled({}, failure="Task 'Write': division by zero", failed=TASK)
    found = failure_of(failed, failed, {"size": 0})
    assert found is not None
    assert (found.rule, found.place, found.task) == (Rule.VALID, "size", TASK)
    assert found.text.endswith("main.yml:4: division by zero")
    assert "minimum: 1" in found.remedy


def test_failure_only_after_a_change_breaks_the_rule_fresh() -> None:
    found = failure_of(settled({}, failure="field is immutable", failed=TASK), settled({}), {"size": 0})
    assert found is not None
    assert found.rule is Rule.FRESH
    assert "self == oldSelf" in found.remedy


def test_successful_object_has_no_symptoms() -> None:
    assert failure_of(settled({}), settled({}), {"size": 0}) is None
    assert noise_of(settled({})) is None


def test_noise_names_its_task() -> None:
    found = noise_of(settled({}, noisy=TASK))
    assert found is not None
    assert (found.rule, found.task) == (Rule.QUIET, TASK)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"size": 0}, "minimum: 1"),
        ({"size": 90}, "maximum: 89"),
        ({"level": None}, "required: true"),
        ({"level": "007"}, "choices"),
        ({"tls": True}, "choices"),
        ({"hosts": []}, "minItems: 1"),
        ({"hosts": ["a"]}, "elements"),
        ({"a": 1, "b": 2}, "required_if"),
    ],
)
def test_remedy_of_a_failure_fits_the_value(values: dict[str, Any], text: str) -> None:
    assert text in schema_rule(values)


def test_deletion_leaves_only_what_runs_did_not_make() -> None:
    end = end_of(("ConfigMap", {}), ("Service", {}), ("Job", {}))
    config, service, job = end
    found = deletion_of(settled(end), SHOP, {config: TASK, job: TASK})
    assert [(each.text, each.task) for each in found] == [("ConfigMap default/configmap remains", TASK)]
    assert deletion_of(settled({service: end[service]}), SHOP, {config: TASK}) == []


def test_object_that_still_exists_after_its_deletion_is_one_symptom() -> None:
    end = end_of(("Shop", {}), ("ConfigMap", {}))
    [found] = deletion_of(settled(end, failure="Task 'Remove': no", failed=TASK), SHOP, dict.fromkeys(end))
    assert found.text == "Shop default/shop isn't deleted: no"


def test_names_images_and_hosts_are_found_at_any_depth() -> None:
    spec = {"rules": [{"host": "a.example", "hosts": ["b.example"]}], "containers": [{"image": "web:1", "x": "no"}]}
    assert names_in(end_of(("ConfigMap", {"spec": spec, "metadata": {"name": "n"}}))) == {
        "a.example",
        "b.example",
        "web:1",
        "n",
    }
