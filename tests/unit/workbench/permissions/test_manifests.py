"""Permissions cover each other as RBAC defines, and the smallest set of them keeps all reasons."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rolecall.workbench.permissions.manifests import Permission, excess, manifests_of, minimal, missing
from tests.support.names import NAMES

PODS = Permission("", "", "pods", "get")
NAMED = Permission("", "", "pods", "get", ("a", "b"))
STATUS = Permission("", "apps", "deployments/status", "update")
IN_NAMESPACE = Permission("ns", "", "pods", "get")


@pytest.mark.parametrize(
    ("need", "grants", "is_covered"),
    [
        (PODS, [PODS], True),
        (PODS, [Permission("", "*", "*", "*")], True),
        (PODS, [Permission("", "", "pods", "list")], False),
        (PODS, [Permission("", "apps", "pods", "get")], False),
        (PODS, [Permission("", "", "pods/log", "get")], False),
        (PODS, [IN_NAMESPACE], False),
        (PODS, [NAMED], False),
        (IN_NAMESPACE, [PODS], True),
        (STATUS, [Permission("", "apps", "*/status", "update")], True),
        (STATUS, [Permission("", "apps", "*/scale", "update")], False),
        (NAMED, [PODS], True),
        (NAMED, [Permission("", "", "pods", "get", (name,)) for name in "ab"], True),
        (NAMED, [Permission("", "", "pods", "get", ("a",))], False),
    ],
)
def test_permission_is_missing_unless_grants_cover_it(
    need: Permission, grants: list[Permission], *, is_covered: bool
) -> None:
    assert missing([need], grants) == ([] if is_covered else [need])


@pytest.mark.parametrize(
    ("need", "grant", "is_needed"),
    [
        (PODS, PODS, True),
        (PODS, Permission("", "", "pods", "list"), False),
        (PODS, Permission("", "", "*", "get"), False),
        (PODS, IN_NAMESPACE, False),
        (PODS, Permission("", "", "pods", "get", ("a",)), True),
        (NAMED, PODS, False),
        (NAMED, Permission("", "", "pods", "get", ("c",)), False),
    ],
)
def test_grant_is_excess_unless_needed_as_it_is(need: Permission, grant: Permission, *, is_needed: bool) -> None:
    assert excess([need], [grant]) == ([] if is_needed else [grant])


def test_covered_permission_is_omitted_and_its_reasons_are_kept() -> None:
    needs = [(NAMED, "names"), (PODS, "all"), (IN_NAMESPACE, "one namespace")]
    assert minimal(needs) == {PODS: {"all", "names", "one namespace"}}


@given(NAMES, st.sampled_from(["default", "123", "null", "1e3"]), st.text())
@example("123", "true", "main.yml:3: Say\n- hello")
@example("on", "y" * 63, "")
@example("a" * 70 + " b" * 20, "default", "")
def test_manifests_have_the_names_and_nothing_of_the_reasons(name: str, namespace: str, reason: str) -> None:
    permission = Permission(namespace, "", "configmaps", "get", (name,))
    text = "\n".join(manifests_of({permission: [reason]}, namespace))
    _, role = yaml.safe_load_all(text)
    assert role["metadata"] == {"name": namespace, "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]}
    assert role["rules"] == [rule]
