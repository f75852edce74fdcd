import pytest

from rolecall.workbench.permissions.manifests import Needs, Right, excess, missing

PODS = Right("", "", "pods", "get")
NAMED = Right("", "", "pods", "get", ("a", "b"))


@pytest.mark.parametrize(
    ("grant", "is_enough"),
    [
        (PODS, True),
        (Right("", "*", "*", "*"), True),
        (Right("", "", "pods", "list"), False),
        (Right("", "apps", "pods", "get"), False),
        (Right("", "", "pods/log", "get"), False),
        (Right("ns", "", "pods", "get"), False),
        (NAMED, False),
    ],
)
def test_a_right_is_missing_unless_a_grant_covers_it(grant: Right, *, is_enough: bool) -> None:
    assert (missing([PODS], [grant]) == []) is is_enough


def test_names_are_covered_by_all_or_by_the_same_names_of_several_grants() -> None:
    one, other = (Right("", "", "pods", "get", (name,)) for name in "ab")
    assert missing([NAMED], [PODS]) == []
    assert missing([NAMED], [one, other]) == []
    assert missing([NAMED], [one]) == [NAMED]


def test_a_right_in_one_namespace_is_covered_by_one_in_all() -> None:
    assert missing([Right("ns", "", "pods", "get")], [PODS]) == []


def test_a_subresource_is_covered_by_its_wildcard() -> None:
    status = Right("", "apps", "deployments/status", "update")
    assert missing([status], [Right("", "apps", "*/status", "update")]) == []
    assert missing([status], [Right("", "apps", "*/scale", "update")]) == [status]


@pytest.mark.parametrize(
    ("grant", "is_needed"),
    [
        (PODS, True),
        (Right("", "", "pods", "list"), False),
        (Right("", "", "*", "get"), False),
        (Right("ns", "", "pods", "get"), False),
        (Right("", "", "pods", "get", ("a",)), True),
    ],
)
def test_a_grant_is_too_much_unless_something_needs_it(grant: Right, *, is_needed: bool) -> None:
    assert (excess([PODS], [grant]) == []) is is_needed


def test_a_grant_without_names_is_too_much_if_names_would_do() -> None:
    assert excess([NAMED], [PODS]) == [PODS]
    assert excess([NAMED], [Right("", "", "pods", "get", ("c",))]) != []


def test_what_another_right_covers_is_left_out_and_its_reasons_are_kept() -> None:
    needs = Needs()
    needs.add(NAMED, "names")
    needs.add(PODS, "all")
    needs.add(Right("ns", "", "pods", "get"), "one namespace")
    assert needs.minimal() == {PODS: {"all", "names", "one namespace"}}
