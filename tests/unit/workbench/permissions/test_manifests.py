"""Permissions cover each other as RBAC defines, and the smallest set of them keeps all reasons."""

import pytest

from rolecall.workbench.permissions.manifests import Permission, excess, minimal, missing

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
