import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.project.scaffold import (
    KindNames,
    ScaffoldError,
    checked_domain,
    checked_group,
    checked_kind,
    checked_plural,
    checked_project,
    checked_version,
    plural_of,
)


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Website", "websites"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Status", "statuses"),
        ("Box", "boxes"),
        ("Batch", "batches"),
        ("Dish", "dishes"),
    ],
)
def test_plurals_follow_simple_english(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


@given(st.from_regex(r"[A-Z][A-Za-z0-9]{0,49}", fullmatch=True))
def test_the_plural_of_every_kind_is_a_plural_that_may_be_given(kind: str) -> None:
    assert checked_plural(plural_of(checked_kind(kind)))


@pytest.mark.parametrize("version", ["v1", "v12", "v1alpha1", "v2beta10"])
def test_versions_of_apis_are_accepted(version: str) -> None:
    assert checked_version(version) == version


@pytest.mark.parametrize("version", ["", "1", "v0", "v01", "V1", "v1.0", "v1gamma1", "v1alpha", "v1\n"])
def test_what_is_no_version_is_refused_with_an_example(version: str) -> None:
    with pytest.raises(ScaffoldError) as refused:
        checked_version(version)
    assert str(refused.value) == f"--version: expected a version such as v1, v1alpha1 or v2beta3, found {version!r}"


@pytest.mark.parametrize("kind", ["", "website", "Web-Site", "1Site", "Web_Site", "Wébsite", "W" * 51])
def test_what_is_no_kind_is_refused(kind: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^--kind: expected "):
        checked_kind(kind)


@pytest.mark.parametrize("name", ["", "Web", "web_shop", "-web", "web-", "1web", "web.shop", "../web", "w" * 41])
def test_what_is_no_name_of_a_project_is_refused(name: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^NAME: expected "):
        checked_project(name)


@pytest.mark.parametrize(
    "domain", ["", ".com", "example..com", "Example.com", "example.com/", "a" * 64, "a." * 130 + "a"]
)
def test_what_is_no_domain_is_refused(domain: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^--domain: expected "):
        checked_domain(domain)


@pytest.mark.parametrize("domain", ["k8s.io", "kubernetes.io", "web.k8s.io"])
def test_domains_that_kubernetes_guards_are_refused(domain: str) -> None:
    with pytest.raises(ScaffoldError, match="of your own"):
        checked_domain(domain)
    assert checked_domain(f"{domain}.example.com")


def test_the_full_group_ends_in_the_domain_and_is_checked_as_a_whole() -> None:
    assert checked_group("shop", "example.com") == "shop.example.com"
    with pytest.raises(ScaffoldError, match=r"^--group with the domain: expected "):
        checked_group("a" * 60, ".".join(["b" * 60] * 4))
    with pytest.raises(ScaffoldError, match=r"^--group: expected .*, found 'Shop'$"):
        checked_group("Shop", "example.com")


def test_a_kind_lends_its_name_in_lower_case() -> None:
    assert KindNames("web", "shop.example.com", "v1", "WebSite", "websites").name == "website"
