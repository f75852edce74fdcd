from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.project.definition_types import Definitions
from rolecall.workbench.project.expression_types import (
    BOOLEAN,
    DICTIONARY,
    FILTERS,
    INTEGER,
    LIST,
    NUMBER,
    STRING,
    certain_type,
    types_of_text,
)
from tests.unit.workbench.project.projects import since_2_19

PROPERTIES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "on": {"type": "boolean"},
    "names": {"type": "array", "items": {"type": "string"}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "port": {"x-kubernetes-int-or-string": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
FIELDS = {"type": "object", "properties": PROPERTIES}
SCHEMA = {"type": "object", "properties": {"spec": FIELDS, "status": FIELDS}}
DEFINITIONS = Definitions({("example.com/v1", "Thing"): SCHEMA}, are_native=True)
HEAD = {"apiVersion": "example.com/v1", "kind": "Thing"}


def paths(task: dict[str, Any], definitions: Definitions = DEFINITIONS) -> list[str]:
    """Return the paths of the values that are reported in a task."""
    return [message.partition(":")[0] for _, message in definitions.check_task(task)]


BAD = [
    ("text", "{{ x | length }}"),
    ("text", "{{ x | bool }}"),
    ("text", "{{ a == b }}"),
    ("text", "{{ x | list }}"),
    ("text", "{{ {'a': 1} }}"),
    ("text", 5),
    ("text", True),
    ("count", "{{ x | string }}"),
    ("count", "{{ x }}-{{ y }}"),
    ("count", "{{ x | bool }}"),
    ("count", "5"),
    ("ratio", "{{ x | to_json }}"),
    ("on", "{{ x | int }}"),
    ("on", "{{ x | lower }}"),
    ("on", "yes"),
    ("names", "{{ x | join(',') }}"),
    ("names", ["a", "{{ x | int }}"]),
    ("labels", {"a": "{{ x | int }}"}),
    ("labels", "{{ x | dict2items }}"),
    ("port", None),
]


@pytest.mark.parametrize(("name", "value"), [each for each in BAD if each[0] != "port"])
def test_value_of_a_certain_other_type_is_reported(name: str, value: Any) -> None:
    for task in (
        {"kubernetes.core.k8s": {"definition": {**HEAD, "spec": {name: value}}}},
        {"k8s": {"resource_definition": [{**HEAD, "status": {name: value}}]}},
        {"k8s": {"api_version": HEAD["apiVersion"], "kind": "Thing", "definition": {"spec": {name: value}}}},
        {"rolecall.util.k8s_status": {"api_version": HEAD["apiVersion"], "kind": "Thing", "status": {name: value}}},
    ):
        [path] = paths(task)
        assert path.startswith(("spec." + name, "status." + name))
        assert paths(task, Definitions(DEFINITIONS.schemas, are_native=False)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "{{ x | string }}", "count": "{{ x | int }}", "ratio": "{{ x | int }}", "on": "{{ x | bool }}"},
        {"text": "{{ x }}", "count": "{{ x }}", "on": "{{ x }}", "names": "{{ x }}", "labels": "{{ x }}"},
        {"text": "{{ x | default(omit) }}", "count": "{{ x | int if x else omit }}"},
        {"names": "{{ x | map('string') | list }}", "labels": "{{ x | combine(y) }}", "text": "a {{ x | int }}"},
        {"port": "{{ x | int }}", "any": "{{ x | int }}", "text": "{{ x | int if y else z }}"},
        {"count": "{{ x | sum(start=[]) }}", "text": "{{ x | default(1) }}", "unknown": "{{ x | int }}"},
        {"count": "{% if x %}{{ x }}{% endif %}", "text": "{% if x %}{{ x | int }}{% else %}a{% endif %}"},
        {"labels": {"a": "b"}, "names": ["a"], "on": True, "count": 5, "ratio": 0.5, "text": None},
    ],
)
def test_value_that_can_have_the_right_type_is_not_reported(fields: dict[str, Any]) -> None:
    assert paths({"k8s": {"definition": {**HEAD, "spec": fields}}}) == []


def test_other_kinds_and_modules_are_not_checked() -> None:
    spec = {"text": 5}
    assert paths({"k8s": {"definition": {**HEAD, "kind": "Other", "spec": spec}}}) == []
    assert paths({"k8s": {"definition": {**HEAD, "apiVersion": "{{ version }}", "spec": spec}}}) == []
    assert paths({"debug": {"definition": {**HEAD, "spec": spec}}}) == []


TEMPLATE = """\
{% set name = 'x' %}
{# several
   lines #}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: "{{ name }}"}
spec:
  {{ more | to_nice_yaml | indent(2) }}
---
apiVersion: example.com/v1
kind: Thing
spec:
{% if x %}
  text: {{ x | length }}
{% else %}
  text: "{{ x | length }}"
{% endif %}
  count: "{{ x | int }}"
  ratio: {{ x | string }}
  on: '{{
    x | bool
  }}'
  names:
{% for each in x %}
    - {{ each }}
    - {{ 1 == 2 }}
{% endfor %}
  labels:
    a: "{{ x | int }}"
    {{ key }}: {{ x | int }}
"""


@pytest.mark.parametrize("are_native", [True, False])
def test_quotes_decide_about_the_types_in_a_template_file(*, are_native: bool) -> None:
    found = list(Definitions(DEFINITIONS.schemas, are_native).check_text(TEMPLATE))
    lines = [(line, message.partition(":")[0]) for line, message in found]
    assert lines == [(15, "spec.text"), (19, "spec.count"), (21, "spec.on"), (27, "spec.names[]")]
    assert paths({"k8s": {"definition": TEMPLATE.partition("---\n")[2].partition("---\n")[2]}}) == [
        "spec.text",
        "spec.count",
        "spec.on",
        "spec.names[]",
    ]


CALLS = (
    "dict(a=1)",
    "range(2)",
    "query('env', 'HOME')",
    "lookup('env', 'HOME')",
    "lookup('env', 'HOME', wantlist=true)",
)
QUICK_FILTERS = sorted(FILTERS.keys() - {"permutations", "password_hash"})  # permutations of permutations never end
EXPRESSIONS = st.recursive(
    st.sampled_from(
        ["n", "s", "b", "l", "d", "f", "'a'", "1", "1.5", "true", "[1]", "{'a': 1}", "omit", "undefined", *CALLS]
    ),
    lambda inner: st.one_of(
        st.builds(
            "{} | {}".format,
            inner,
            st.sampled_from(
                [*QUICK_FILTERS, "bool", "default(1)", "default('a')", "ternary(1, 2)", "ternary('a', [])"]
            ),
        ).map("({})".format),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or", "~", "==", "in", "+"]), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("{}.{}()".format, inner, st.sampled_from(["lower", "split", "strip"])),
    ),
    max_leaves=4,
)
VARIABLES = {"n": 3, "s": "text 1", "b": False, "l": ["a", "b"], "d": {"a": "b"}, "f": 2.5}
TYPES = {STRING: str, INTEGER: int, NUMBER: (int, float), BOOLEAN: bool, LIST: list, DICTIONARY: dict}


@since_2_19
@given(expression=EXPRESSIONS)
def test_certain_type_is_the_type_of_the_result(expression: str) -> None:
    from ansible._internal._datatag._tags import TrustedAsTemplate  # noqa: PLC0415 - since 2.19

    found = certain_type(types_of_text(f"{{{{ {expression} }}}}"))
    try:
        result = Templar(DataLoader(), variables=VARIABLES).template(TrustedAsTemplate().tag(f"{{{{ {expression} }}}}"))
    except Exception:  # noqa: BLE001 - a filter raises anything for an input of another type
        return
    if found is not None and "omit" not in expression:
        assert isinstance(result, TYPES[found]), (expression, result)  # type: ignore[arg-type]
        assert isinstance(result, bool) == (found == BOOLEAN)
