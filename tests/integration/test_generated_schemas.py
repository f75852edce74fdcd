"""The schemas of ``rolecall generate crds`` on a real API server.

Whatever it accepts, the role's validation accepts. Whatever the role's validation accepts without converting a value or
a name, the API server accepts.

Random argument specs become CRDs, and random specs are sent to them as dry runs. What the API server would store, with
its defaults, becomes variables as in a run. Ansible's own validator judges them, as its role validation does, and once
more as an option with the rules of the entry point, which the role validation ignores.
"""

import copy
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from rolecall.kube.references import GVK
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.variables import extra_vars, snake_case, snake_case_keys
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.api_client import ApiClient, Response
from rolecall.workbench.project.argument_specs import check_arguments
from rolecall.workbench.project.crd_rules import RULE_KEYS
from rolecall.workbench.project.crd_schema import SchemaSync
from tests.support.world import TIMEOUT_SECONDS

Json = dict[str, Any]
GROUP, VERSION = "schemas.rolecall.dev", "v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = ("size", "image_url", "http_port", "in", "namespace", "a_1", "use__tls", "x")
NAMES_OF_KIND = {"kind": "Case", "plural": "cases", "singular": "case"}
TEXTS = st.sampled_from(["", "a", "b", "yes", "True", "1", "~", "$HOME", 'quo"te', "ü", "1K", "10.5MB"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 2.5, 1.0, 2**53, 2**63 - 1])
JUNK = st.one_of(
    TEXTS,
    NUMBERS,
    st.booleans(),
    st.none(),
    st.lists(TEXTS, max_size=2),
    st.dictionaries(st.sampled_from(NAMES), TEXTS),
)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "str": TEXTS,
    "path": TEXTS,
    "json": TEXTS,
    "jsonarg": TEXTS,
    "bytes": st.sampled_from(["1", "1K", "10.5MB", "3B", "1 MB", "1Kb", "x"]),
    "bits": st.sampled_from(["1", "1K", "10.5Mb", "3b", "1 Mb", "1KB", "x"]),
    "int": st.sampled_from([0, 1, 2, -1, 2**63 - 1, 1.0]),
    "float": NUMBERS,
    "bool": st.booleans(),
    "raw": JUNK,
    "dict": st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=2),
    "list": st.lists(JUNK, max_size=2),
}
JUDGED = (HTTPStatus.CREATED, HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Other statuses say nothing about the schema, such as those of an API server that isn't ready for the kind."""
COMPARED = ("str", "int", "float", "bool")


@st.composite
def rules(draw: st.DrawFn, options: Json) -> Json:
    """Draw rules between options."""
    names = st.lists(st.sampled_from([*options, "unknown"]), min_size=1, max_size=7, unique=True)
    conditions = st.tuples(st.sampled_from([*options]), JUNK | VALUES["int"], names, st.booleans()).map(list)
    made = {
        "mutually_exclusive": st.lists(names, max_size=2),
        "required_together": st.lists(names, max_size=1),
        "required_one_of": st.lists(names, max_size=1),
        "required_if": st.lists(conditions, max_size=2),
        "required_by": st.dictionaries(st.sampled_from([*options]), names, max_size=1),
    }
    return {key: found for key in draw(st.sets(st.sampled_from(RULE_KEYS), max_size=2)) if (found := draw(made[key]))}


@st.composite
def options(draw: st.DrawFn, depth: int = 0) -> Json:
    """Draw an option that a role can have."""
    option: Json = {}
    if kind := draw(st.sampled_from([None, *VALUES, "dict", "list", "list", "str", "int", "bool"])):
        option["type"] = kind
    value_kind = kind or "str"
    if kind == "list" and (elements := draw(st.sampled_from([None, *VALUES, "dict", "dict", "str"]))):
        option["elements"] = value_kind = elements
    if value_kind == "dict" and depth < 2 and draw(st.booleans()):
        option |= draw(entries(depth + 1))
        option |= {"apply_defaults": draw(st.sampled_from([True, "true"]))} if draw(st.integers(0, 3)) == 0 else {}
    if value_kind in COMPARED and draw(st.booleans()):
        option["choices"] = draw(st.lists(VALUES[value_kind], min_size=1, max_size=3, unique_by=str))
    match draw(st.sampled_from(["optional", "optional", "default", "required"])):
        case "required":
            option["required"] = True
        case "default":
            option["default"] = draw(st.sampled_from(option["choices"]) if "choices" in option else VALUES[value_kind])
            if kind == "list":
                option["default"] = [option["default"]]
    return option


def is_valid(option: Json) -> bool:
    """Return whether nothing is wrong with an option, and whether its default passes."""
    return not list(check_arguments({"main": {"options": {"x": option}}}, DEFAULT_TYPE_VALIDATORS)) and (
        "default" not in option or not errors({"x": option}, {})
    )


@st.composite
def entries(draw: st.DrawFn, depth: int = 0) -> Json:
    """Draw an entry point, or the part of an option with its options."""
    found = draw(st.dictionaries(st.sampled_from(NAMES), options(depth).filter(is_valid), min_size=1, max_size=6))
    return {"options": found, **draw(rules(found))}


@st.composite
def values(draw: st.DrawFn, schema: Json, option: Json) -> Any:
    """Draw a value for a field, mostly one of the right type."""
    kind = option.get("type", "str")
    if draw(st.integers(0, 11)) == 0:
        return draw(JUNK)
    if kind == "list" and "items" in schema:
        element = {key: each for key, each in option.items() if key != "elements"}
        element["type"] = option.get("elements", "raw")
        return draw(st.lists(values(schema["items"], element), max_size=2))
    if kind == "dict" and option.get("options") is not None:
        return draw(fields(schema, option))
    return draw(st.sampled_from(option["choices"]) if option.get("choices") else VALUES[kind])


@st.composite
def fields(draw: st.DrawFn, schema: Json, entry: Json) -> Json:
    """Draw an object with the fields of an entry point or option."""
    found = {}
    for name, field in (schema.get("properties") or {}).items():
        option = entry["options"].get(snake_case(name), {})
        if draw(st.integers(0, 9)) < (9 if option.get("required") else 5):
            found[name] = draw(values(field, option))
    if draw(st.integers(0, 19)) == 0:
        found[draw(st.sampled_from(NAMES))] = draw(JUNK)
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """An entry point, the schema of its kind, specs, and whether no note restricts what the schema guarantees.

    A schema ``is_new`` if nothing in it is from another entry point, such as an enum that could be written by hand.
    """

    entry: Json
    root: Json
    specs: list[Json]
    is_complete: bool
    is_new: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case. In some, the schema was made for another entry point before."""
    entry = draw(entries())
    root: Json = {"type": "object"}
    is_new = draw(st.integers(0, 3)) != 0
    if not is_new:
        SchemaSync().apply(root, draw(entries()))
    sync = SchemaSync()
    sync.apply(root, entry)
    again = SchemaSync()
    again.apply(root, entry)
    assert again.changes == []
    specs = draw(st.lists(fields(root["properties"]["spec"], entry), min_size=4, max_size=4))
    restricting = [note for note in sync.notes if "the default" not in note.text]
    is_complete = not restricting and all(each.path.count(".") == 1 for each in sync.unknown)
    return Case(entry, root, specs, is_complete, is_new)


def errors(argument_spec: Json, variables: Json) -> list[str]:
    """Return Ansible's errors about variables."""
    # The validator changes the defaults in the specs.
    validator = ArgumentSpecValidator(copy.deepcopy(argument_spec))
    found = validator.validate(copy.deepcopy(variables), validate_role_argument_spec=True)
    messages: list[str] = found.error_messages
    return messages


@dataclass(slots=True)
class Kind:
    """A kind whose schema changes: a marker, which every object must have, shows which schema the API server uses."""

    server: ApiClient
    marker: int = 0

    def define(self, root: Json) -> None:
        """Replace the schema, and wait until the API server uses it."""
        self.marker += 1
        marker = {"type": "integer", "enum": [self.marker]}
        schema = {**root, "properties": {**root["properties"], "marker": marker}}
        schema["required"] = [*root.get("required", []), "marker"]
        version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        made = self._define({"group": GROUP, "scope": "Namespaced", "names": NAMES_OF_KIND, "versions": [version]})
        assert made.is_success, (made.message, root)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (sent := self.send({})).status not in JUDGED or "marker" in sent.message:
            assert time.monotonic() < deadline, f"the API server does not use schema {self.marker}"

    def _define(self, spec: Json) -> Response:
        path, metadata = f"{DEFINITIONS}/cases.{GROUP}", {"name": f"cases.{GROUP}"}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
        if self.marker == 1:
            return self.server.request("POST", DEFINITIONS, {**definition, "spec": spec}, TIMEOUT_SECONDS)
        while True:  # the API server writes the status concurrently
            metadata["resourceVersion"] = self.server.get(path).content["metadata"]["resourceVersion"]
            made = self.server.request("PUT", path, {**definition, "spec": spec}, TIMEOUT_SECONDS)
            if made.status != HTTPStatus.CONFLICT:
                return made

    def send(self, obj: Json) -> Response:
        """Send an object as a dry run, as kubectl does."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/default/cases?dryRun=All&fieldValidation=Strict"
        same = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Case", "metadata": {"name": "one"}, "marker": self.marker}
        return self.server.request("POST", path, {**same, **obj}, TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def kind() -> Iterator[Kind]:
    """Yield a kind on an API server without controllers."""
    with ControlPlane(f"test-schemas-{uuid.uuid4().hex[:8]}", has_controllers=False) as plane:
        address = urlparse(plane.server)
        yield Kind(ApiClient(str(address.hostname), int(address.port or 0), plane.layout.certificates))


@settings(max_examples=max(200, (settings.default or settings()).max_examples), suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_role_accepts_whatever_the_api_server_accepts(kind: Kind, case: Case) -> None:
    kind.define(case.root)
    for spec in case.specs:
        sent = kind.send({"spec": spec})
        event(f"accepted: {sent.is_success}, complete: {case.is_complete}")
        if sent.is_success and case.is_complete:
            assert rejections(case.entry, sent.content) == [], (case, spec)
        if case.is_new and is_accepted_as_it_is(case, spec):
            event(f"accepted by the role as it is: {sent.is_success}")
            assert sent.is_success, (case, spec, sent.message)


NESTED_RULES: Mapping[str, Json] = {
    "required_if, not met": {"required_if": [["mode", "own", ["secret"]]]},
    "required_if, met by a default": {"required_if": [["mode", "none", ["secret"]]]},
    "mutually_exclusive": {"mutually_exclusive": [["mode", "secret"]]},
    "required_together": {"required_together": [["secret", "user"]]},
    "required_by": {"required_by": {"secret": ["user"]}},
    "required_one_of, met by a default": {"required_one_of": [["mode", "secret"]]},
    "required_one_of, not met": {"required_one_of": [["user", "secret"]]},
}


@pytest.mark.parametrize("value", [True, "true"], ids=["boolean", "string"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("rule", NESTED_RULES)
def test_field_with_apply_defaults_is_required_only_if_the_role_rejects_its_absence(
    kind: Kind, rule: str, depth: int, value: object
) -> None:
    option: Json = {"type": "dict", "apply_defaults": value, **NESTED_RULES[rule]}
    option["options"] = {"mode": {"default": "none"}, "secret": {}, "user": {}}
    for _ in range(1, depth):
        option = {"type": "dict", "apply_defaults": value, "options": {"x": option}}
    entry = {"options": {"size": option, "in": {}}}
    root: Json = {"type": "object"}
    SchemaSync().apply(root, entry)
    kind.define(root)
    sent = kind.send({"spec": {"in": "a"}})
    assert sent.is_success == (errors(entry["options"], {"in": "a"}) == []), sent.message
    if sent.is_success:
        assert rejections(entry, sent.content) == []


@pytest.mark.parametrize("rule", [{"required_together": [["size", "in"]]}, {"required_by": {"size": ["in"]}}])
def test_value_from_the_defaults_of_options_is_not_set_for_the_rules_around_it(kind: Kind, rule: Json) -> None:
    size = {"type": "dict", "apply_defaults": "true", "options": {"mode": {"default": "none"}}}
    root: Json = {"type": "object"}
    SchemaSync().apply(root, {"options": {"size": size, "in": {}}, **rule})
    kind.define(root)
    assert kind.send({"spec": {}}).is_success
    assert not kind.send({"spec": {"size": {}}}).is_success


def is_accepted_as_it_is(case: Case, spec: Json) -> bool:
    """Return whether the role accepts a spec, and Ansible keeps all of its values.

    Numbers of bits or bytes can be integers for Ansible, but are strings in the schema. Booleans are numbers for
    Ansible, but not in JSON. Several names of a field become the same variable, but the schema has one of them.
    """
    entry = case.entry
    if has_other_name(case.root["properties"]["spec"], spec):
        return False
    if any(f'"{kind}"' in json.dumps(entry) for kind in ("bits", "bytes")):
        return False
    obj = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Case", "metadata": {"name": "one"}, "spec": spec}
    variables = snake_case_keys(spec)
    validator = ArgumentSpecValidator(copy.deepcopy(entry["options"]))
    try:
        if not variables.keys() <= entry["options"].keys() or rejections(entry, obj):
            return False
        if has_boolean_number(entry, variables):
            return False
        found = validator.validate(copy.deepcopy(variables), validate_role_argument_spec=True)
    except TypeError:  # Ansible doesn't expect a number in place of a dictionary
        return False
    return is_part(variables, found.validated_parameters)


def has_other_name(schema: Json, value: Any) -> bool:
    """Return whether a key, at any depth, becomes the variable of a field that has another name in the schema."""
    if isinstance(value, list):
        return any(has_other_name(schema.get("items") or {}, each) for each in value)
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        variables = {snake_case(name) for name in properties}
        return any(
            has_other_name(properties[name], each) if name in properties else snake_case(name) in variables
            for name, each in value.items()
        )
    return False


def has_boolean_number(option: Json, value: Any) -> bool:
    """Return whether a value, or one in it, is a boolean where the option is a number."""
    if isinstance(value, list):
        return any(has_boolean_number({**option, "type": option.get("elements")}, each) for each in value)
    if isinstance(value, dict):
        options = option.get("options") or {}
        return any(has_boolean_number(options.get(name) or {}, each) for name, each in value.items())
    return isinstance(value, bool) and option.get("type") in ("int", "float")


def is_part(value: Any, whole: Any) -> bool:
    """Return whether a value is not null, and is equal to another, which may have more keys."""
    if isinstance(value, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(each, whole[key]) for key, each in value.items())
    if isinstance(value, list) and isinstance(whole, list):
        return len(value) == len(whole) and all(map(is_part, value, whole))
    return value is not None and type(value) is type(whole) and bool(value == whole)


def rejections(entry: Json, obj: Json) -> list[str]:
    """Return Ansible's errors about the variables of a run, including those of the entry point's rules."""
    found = extra_vars(obj, Watch(GVK.of_object(obj), RoleContent(Path("role"))))
    variables = {name: value for name, value in found.items() if name in entry["options"]}
    as_option = {"spec": {**entry, "type": "dict", "required": True}}
    return errors(entry["options"], variables) + errors(as_option, {"spec": variables})


CHOSEN: Json = {
    "options": {
        "image_url": {"type": "str", "required": True},
        "size": {"type": "int", "choices": [1, 2], "default": 1},
        "tags": {"type": "list", "elements": "str"},
        "a": {"type": "str", "default": "x"},
        "b": {"type": "str"},
        "tls": {
            "type": "dict",
            "options": {"mode": {"type": "str"}, "secret_name": {"type": "str"}},
            "required_if": [["mode", "own", ["secret_name"]]],
        },
    },
    "mutually_exclusive": [["a", "b"]],
}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"imageUrl": "x", "tls": {"mode": "other"}, "tags": ["x"], "b": "not with the default of a"}, ""),
        (None, "spec: Required value"),
        ({}, "spec.imageUrl: Required value"),
        ({"imageUrl": 5}, "spec.imageUrl in body must be of type string"),
        ({"imageUrl": "x", "size": 3}, "spec.size: Unsupported value: 3"),
        ({"imageUrl": "x", "tags": ["x", 1]}, "spec.tags[1] in body must be of type string"),
        ({"imageUrl": "x", "sise": 3}, 'unknown field "spec.sise"'),
        ({"imageUrl": "x", "tls": {"secret": "x"}}, 'unknown field "spec.tls.secret"'),
        ({"imageUrl": "x", "a": "1", "b": "2"}, "at most one of a, b can be set (mutually_exclusive)"),
        ({"imageUrl": "x", "tls": {"mode": "own"}}, 'secretName must be set if mode is "own" (required_if)'),
    ],
)
def test_api_server_names_the_field_that_it_rejects(kind: Kind, spec: Json | None, message: str) -> None:
    root: Json = {"type": "object"}
    SchemaSync().apply(root, CHOSEN)
    kind.define(root)
    sent = kind.send({"spec": spec})
    assert sent.is_success == (not message)
    assert message in sent.message
    if not message:
        assert sent.content["spec"]["size"] == 1
        assert rejections(CHOSEN, sent.content) == []
