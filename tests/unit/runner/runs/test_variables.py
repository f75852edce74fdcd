import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import assume, given
from hypothesis import strategies as st

from rolecall.kube.references import GVK
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.runs.variables import (
    declared_part,
    extra_vars,
    is_reserved,
    object_variable,
    snake_case,
    snake_case_keys,
)
from tests.unit.json_values import JSON

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
ROLE: Content = RoleContent(Path("/roles/memcached"))


def an_object(spec: Any = None, **metadata: str) -> dict[str, Any]:
    obj: dict[str, Any] = {"metadata": {"name": "sample", "namespace": "default", **metadata}}
    return obj if spec is None else {**obj, "spec": spec}


def a_watch(**fields: Any) -> Watch:
    """Return a watch with these fields."""
    return Watch(MEMCACHED, ROLE, **fields)


def variables_of(spec: Any = None, *, finalizing: bool = False, **watch: Any) -> dict[str, Any]:
    """Return the extra vars for an object with this spec, and a watch with these fields."""
    return extra_vars(an_object(spec), a_watch(**watch), finalizing=finalizing)


def test_spec_keys_become_snake_case_and_the_raw_spec_keeps_them() -> None:
    variables = variables_of({"serviceAccount": {"tierName": "Web"}})
    assert variables["service_account"] == {"tier_name": "Web"}
    assert variables["_cache_example_com_memcached_spec"] == {"serviceAccount": {"tierName": "Web"}}


def test_spec_keys_stay_when_snake_case_is_off() -> None:
    variables = variables_of({"serviceAccount": 1}, snake_case_parameters=False)
    assert variables["serviceAccount"] == 1
    assert "service_account" not in variables


def test_whole_object_is_passed() -> None:
    obj = an_object({"size": 1}) | {"status": {"conditions": []}}
    assert extra_vars(obj, a_watch())["_cache_example_com_memcached"] == obj


@pytest.mark.parametrize(
    ("metadata", "meta"),
    [
        ({"name": "x", "namespace": "default"}, {"name": "x", "namespace": "default"}),
        ({"name": "x"}, {"name": "x", "namespace": ""}),
    ],
    ids=["namespaced", "cluster-scoped"],
)
def test_meta_names_the_object(metadata: dict[str, str], meta: dict[str, str]) -> None:
    assert extra_vars({"metadata": metadata}, a_watch())["ansible_operator_meta"] == meta


@pytest.mark.parametrize("spec", [None, "text", ["list"], 7])
def test_spec_that_is_not_a_mapping_counts_as_empty(spec: Any) -> None:
    variables = variables_of(spec)
    assert variables["_cache_example_com_memcached_spec"] == {}


@pytest.mark.parametrize(
    ("gvk", "name"),
    [
        (MEMCACHED, "_cache_example_com_memcached"),
        (GVK("", "v1", "Secret"), "__secret"),
        (GVK("my-group.io", "v1", "My-Kind"), "_my_group_io_my_kind"),
    ],
)
def test_variable_of_the_object_is_named_after_group_and_kind(gvk: GVK, name: str) -> None:
    assert object_variable(gvk) == name


def test_watch_vars_override_meta_and_meta_overrides_the_spec() -> None:
    spec = {"ansible_operator_meta": "spec", "size": "spec", "color": "spec"}
    assert variables_of(spec)["ansible_operator_meta"]["name"] == "sample"
    watch = {"ansible_operator_meta": "watch", "size": "watch"}
    variables = variables_of(spec, variables=watch)
    assert (variables["ansible_operator_meta"], variables["size"], variables["color"]) == ("watch", "watch", "spec")


def test_finalizer_vars_override_everything_in_a_finalizer_run() -> None:
    spec, watch = {"state": "spec"}, {"state": "watch", "more": 1}
    variables = variables_of(
        spec, variables=watch, finalizing=True, finalizer=Finalizer("a/b", None, {"state": "absent"})
    )
    assert (variables["state"], variables["more"]) == ("absent", 1)


def test_only_strings_of_the_object_are_marked_unsafe() -> None:
    obj = an_object({"jsonPath": ["{{ x }}", 3, True]})
    variables = extra_vars(obj, a_watch(variables={"mine": "{{ y }}"}), mark_unsafe=True)
    marked = [{"__ansible_unsafe": "{{ x }}"}, 3, True]
    assert variables["json_path"] == marked
    assert variables["_cache_example_com_memcached_spec"] == {"jsonPath": marked}
    assert variables["_cache_example_com_memcached"]["metadata"]["name"] == {"__ansible_unsafe": "sample"}
    assert variables["ansible_operator_meta"] == {
        "name": {"__ansible_unsafe": "sample"},
        "namespace": {"__ansible_unsafe": "default"},
    }
    assert variables["mine"] == "{{ y }}"


def test_object_is_not_changed() -> None:
    obj = an_object({"jsonPath": "{{ x }}"})
    extra_vars(obj, a_watch(), mark_unsafe=True)
    assert obj == an_object({"jsonPath": "{{ x }}"})


def test_blank_and_colliding_keys_of_the_spec_are_accepted() -> None:
    spec = {"": 1, "  ": 2, "fooBar": 3, "foo_bar": 4}
    variables = variables_of(spec)
    assert (variables[""], variables["  "], variables["foo_bar"]) == (1, 2, 4)
    assert variables["_cache_example_com_memcached_spec"] == spec


def test_spec_cannot_replace_the_object() -> None:
    spec = {"_cache_example_com_memcached": "spoof", "_cache_example_com_memcached_spec": "spoof"}
    variables = variables_of(spec, snake_case_parameters=False)
    assert variables["_cache_example_com_memcached_spec"] == spec
    assert variables["_cache_example_com_memcached"]["spec"] == spec


@given(JSON, st.booleans(), st.booleans())
def test_any_spec_is_accepted(spec: Any, snake: bool, unsafe: bool) -> None:  # noqa: FBT001 - hypothesis gives them by place
    obj = {"metadata": {"name": "sample", "namespace": "default"}, "spec": spec}
    fields = spec if isinstance(spec, dict) else {}
    assume(not any(map(is_reserved, snake_case_keys(fields) if snake else fields)))  # a test below has these
    variables = extra_vars(obj, a_watch(snake_case_parameters=snake), mark_unsafe=unsafe)
    assert json.loads(json.dumps(variables)) == variables
    if not unsafe:
        assert variables["ansible_operator_meta"] == {"name": "sample", "namespace": "default"}
        assert variables["_cache_example_com_memcached_spec"] == fields


@pytest.mark.parametrize("key", ["ansible_remote_tmp", "ansiblePythonInterpreter", "AnsibleConfigDebug"])
def test_spec_with_a_reserved_variable_is_rejected_by_name(key: str) -> None:
    with pytest.raises(ValueError, match=r"ansible_.* which Ansible itself acts on"):
        variables_of({key: "$(id)"}, allow_variables=frozenset({"ansible_user"}))


def test_reserved_variable_that_the_watch_allows_is_passed_on() -> None:
    assert variables_of({"ansibleUser": "me"}, allow_variables=frozenset({"ansible_user"}))["ansible_user"] == "me"


def test_only_declared_fields_become_variables() -> None:
    spec = {"podCount": 2, "found": "overrides a register", "ansibleRemoteTmp": "elsewhere"}
    variables = variables_of(spec, declared={ROLE: frozenset({"pod_count", "other"})})
    assert variables["pod_count"] == 2
    assert variables["_cache_example_com_memcached_spec"] == spec
    assert not variables.keys() & {"found", "ansible_remote_tmp", "other"}


def test_role_may_declare_no_fields() -> None:
    variables = variables_of({"size": 1}, declared={ROLE: frozenset()}, variables={"tier": "web"})
    assert "size" not in variables
    assert variables["tier"] == "web"


RESERVED = """
ansible_remote_tmp ansible_shell_executable ansible_python_interpreter ansible_connection _ansible_debug
inventory_hostname inventory_hostname_short group_names omit lxd_become_method passwordstore sops_binary wsl_user
azure_client_id
"""
FREE = """connection environment port tags timeout size my_ansible_thing ansible groups_wanted host
azure_resource_group proxmox_node lmdb wsl"""


@pytest.mark.parametrize(
    ("name", "expected"), [(name, True) for name in RESERVED.split()] + [(name, False) for name in FREE.split()]
)
def test_names_of_variables_that_change_ansible_are_reserved(name: str, *, expected: bool) -> None:
    assert is_reserved(name) is expected


TABLE = """
size size
serviceAccount service_account
ThisShouldHaveUnderscores _this_should_have_underscores
JSONData _json_data
jsonData json_data
parseJSON parse_json
sizeK8sBuckets size_k8s_buckets
k8s_var k8s_var
db2_init db2_init
pg1_repo_path pg1_repo_path
v1beta1 v1beta1
abc11def abc11def
a1b2 a_1_b2
x1y2z3 x_1_y2z3
tls1v2 tls_1_v2
maxCPU2Limit max_cpu2_limit
ipv4Addr ipv4_addr
IPv4 ip_v4
clusterIP cluster_ip
clusterIPs cluster_ips
egressIPsegress egress_ips_egress
IPsegress _ips_egress
URLegressIPEgressHTTP url_egress_ip_egress_http
URLsegressIPsEgressHTTPs _urls_egress_ips_egress_https
HTTPURL http__url
URLHTTP url__http
HTTPServer http_server
HTTPSServer http_s_server
enableHTTPS enable_http_s
userIDs user_i_ds
ID _id
IDs _i_ds
IP __ip
URL __url
IPs __ips
PVCSize _pvc_size
ZIPCode _z_ip_code
DESCRIPTION _descr_ip_tion
aB ab
UPPER_CASE _upper_case
config-storage config_storage
my.dotted.key my.dotted.key
app.kubernetes.io/name app.kubernetes.io/name
trailing_ trailing_
two__under two__under
"""


@pytest.mark.parametrize(("key", "expected"), [line.split() for line in TABLE.strip().splitlines()])
def test_keys_are_converted_as_by_the_go_runner(key: str, expected: str) -> None:
    assert snake_case(key) == expected


@pytest.mark.parametrize(("key", "expected"), [("with space", "with_space"), ("", ""), (" ", " "), ("   ", "   ")])
def test_blanks_separate_words_and_a_blank_key_is_unchanged(key: str, expected: str) -> None:
    assert snake_case(key) == expected


def test_keys_are_converted_at_every_depth() -> None:
    assert snake_case_keys({"nodeSelector": [{"tierName": {"aKey": "camelCase"}}]}) == {
        "node_selector": [{"tier_name": {"a_key": "camelCase"}}]
    }


def test_alphabetically_last_of_colliding_keys_wins() -> None:
    assert snake_case_keys({"foo_bar": 1, "fooBar": 2}) == {"foo_bar": 1}
    assert snake_case_keys({"fooBar": 2, "foo_bar": 1}) == {"foo_bar": 1}


QUOTA = {"type": "dict", "options": {"max_pods": {"type": "int", "aliases": ["pods"]}, "free": {"type": "dict"}}}
RULES = {"type": "list", "elements": "dict", "options": {"port": {"type": "int"}, "quota": QUOTA}}


@pytest.mark.parametrize(
    ("options", "spec", "part", "left_out"),
    [
        ({}, {"quota": {"any": 1}}, {"quota": {"any": 1}}, []),
        ({"quota": QUOTA}, {"other": {"any": 1}}, {"other": {"any": 1}}, []),
        ({"quota": QUOTA}, {"quota": {"maxPods": 1, "storage": "1Gi"}}, {"quota": {"maxPods": 1}}, ["quota.storage"]),
        ({"quota": QUOTA}, {"quota": {"pods": 1, "free": {"x": {"y": 2}}}}, None, []),
        ({"quota": QUOTA}, {"quota": "maxPods=1"}, None, []),
        ({"quota": {**QUOTA, "type": "str"}}, {"quota": {"x": 1}}, None, []),
        (
            {"rules": RULES},
            {"rules": [{"port": 1, "a": 1}, "text", {"a": 2, "quota": {"b": 1}}]},
            {"rules": [{"port": 1}, "text", {"quota": {}}]},
            ["rules[].a", "rules[].quota.b"],
        ),
    ],
)
def test_nested_fields_that_validation_would_reject_are_left_out_and_named(
    options: dict[str, Any], spec: dict[str, Any], part: dict[str, Any] | None, left_out: list[str]
) -> None:
    before = json.dumps(spec)
    assert declared_part(spec, options, snake_case_names=True) == (spec if part is None else part, tuple(left_out))
    assert json.dumps(spec) == before


NAMES = st.sampled_from(["cpu", "maxPods", "max_pods", "storage", "x"])
OPTIONS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([{"type": "int"}, {"type": "dict"}, {"type": "raw", "options": {"cpu": {}}}, {}]),
    lambda inner: st.builds(
        lambda kind, options, has_aliases: {
            **kind,
            "options": {
                name: {**each, "aliases": [f"{name}_too"]} if has_aliases else each for name, each in options.items()
            },
        },
        st.sampled_from([{"type": "dict"}, {"type": "list", "elements": "dict"}, {"type": "list"}]),
        st.dictionaries(NAMES.filter(str.islower), inner, max_size=3),
        st.booleans(),
    ),
    max_leaves=8,
)
SPECS = st.dictionaries(NAMES.filter(str.islower), OPTIONS, max_size=3)


def values(option: dict[str, Any], *, snake: bool) -> st.SearchStrategy[Any]:
    """Return values of the type that an option has, with fields that it declares and others."""
    nested = option.get("options", {})
    if option.get("type") not in ("dict", "list") or not nested:
        return st.just({"x": 1}) if option.get("type") == "dict" else st.integers()
    known = {name: values(each, snake=snake) for name, each in nested.items()}
    names = {name.replace("_p", "P") if snake else name: each for name, each in known.items()}
    if any("aliases" in each for each in nested.values()):
        names = {f"{name}_too": each for name, each in known.items()}
    unknown = {"unit": st.just(1), "strange": st.just(2), "NEW": st.just([3])}
    item = st.fixed_dictionaries({}, optional=unknown | names)
    return st.lists(item, max_size=2) if option["type"] == "list" else item


@given(data=st.data(), options=SPECS, snake=st.booleans())
def test_no_field_of_the_rest_is_unknown_to_ansible_and_all_that_is_known_stays(
    *, data: st.DataObject, options: dict[str, Any], snake: bool
) -> None:
    """The oracle is ansible-core's own validation, as the role runs it."""

    def unsupported(part: dict[str, Any]) -> list[str]:
        parameters = snake_case_keys(part) if snake else part
        given = {name: value for name, value in parameters.items() if name in options}
        found = ArgumentSpecValidator(json.loads(json.dumps(options))).validate(json.loads(json.dumps(given)))
        return [text for text in found.error_messages if "upported parameters" in text or "Unsupported" in text]

    spec = {name: data.draw(values(option, snake=snake)) for name, option in options.items()} | {"more": {"x": 1}}
    part, left_out = declared_part(spec, options, snake_case_names=snake)
    assert unsupported(part) == []
    assert bool(left_out) is bool(unsupported(spec))
    assert (part == spec) is not bool(left_out)
