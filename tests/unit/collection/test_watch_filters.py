from ansible_collections.rolecall.util.plugins.filter.watch import FilterModule, mapped_status, role_variables

FOO = {
    "apiVersion": "e.com/v1",
    "kind": "Foo",
    "metadata": {"name": "f", "namespace": "ns", "generation": 3},
    "spec": {"deploymentName": "d", "labels": {"tierName": "Web"}},
}


def test_role_variables_are_those_of_the_operator() -> None:
    assert role_variables(FOO, {"vars": {"extra": 1}}) == {
        "deployment_name": "d",
        "labels": {"tier_name": "Web"},
        "ansible_operator_meta": {"name": "f", "namespace": "ns"},
        "_e_com_foo": FOO,
        "_e_com_foo_spec": FOO["spec"],
        "extra": 1,
    }


def test_names_are_unchanged_without_snake_case() -> None:
    assert role_variables(FOO, {"snakeCaseParameters": False})["deploymentName"] == "d"


def test_status_is_mapped_from_stats_and_object() -> None:
    watch = {"status": {"ready": "$.stats.ready_pods", "name": "$.resource.metadata.name", "other": "$.stats.other"}}
    assert mapped_status(FOO, watch, {"ready_pods": 2}) == {"ready": 2, "name": "f", "observedGeneration": 3}


def test_object_without_generation_has_no_observed_generation() -> None:
    assert mapped_status({"metadata": {}}, {}, {}) == {}


def test_ansible_finds_the_filters() -> None:
    assert set(FilterModule().filters()) == {"role_variables", "mapped_status"}
