import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import SeenObject
from rolecall.runner.prune.observations import ObjectId, Observations, Other, Own

A = ObjectId("apps", "deployments", "ns", "a")


def request(verb: str, name: str = "a", subresource: str = "", *, is_dry_run: bool = False) -> RequestInfo:
    return RequestInfo(
        verb,
        is_resource=True,
        group="apps",
        version="v1",
        namespace="ns",
        resource="deployments",
        name=name,
        subresource=subresource,
        is_dry_run=is_dry_run,
    )


def seen(name: str = "a", *, is_own: bool = True, waits_for: str = "", made_for: str = "") -> SeenObject:
    return SeenObject(ObjectKey("ns", name), f"uid-{name}", is_own, waits_for, made_for)


def test_response_shows_an_own_object() -> None:
    found = Observations()
    found.add(request("get"), 200, (seen(),))
    assert found.own == {A: Own("v1", "uid-a", has_uid_in_mark=False)}


@pytest.mark.parametrize("verb", ["get", "patch", "update", "delete"])
@pytest.mark.parametrize("status", [200, 404, 409, 422])
def test_request_names_its_object_whatever_the_response(verb: str, status: int) -> None:
    found = Observations()
    found.add(request(verb), status, None)
    assert found.names(A, "")


def test_created_object_is_own_and_listed_one_only_named() -> None:
    """Another controller may have copied an object with its owner, which a role that lists copies then sees."""
    found = Observations()
    found.add(request("create", ""), 201, (seen(),))
    found.add(request("list", ""), 200, (seen("b"),))
    assert found.own.keys() == {A}
    assert found.names(A._replace(name="b"), "")


def test_list_takes_nothing_from_what_the_run_has_made() -> None:
    found = Observations()
    found.add(request("create", ""), 201, (seen(),))
    found.add(request("list", ""), 200, (seen(),))
    assert found.own.keys() == {A}


@pytest.mark.parametrize(("verb", "status"), [("delete", 200), ("delete", 202), ("get", 404), ("patch", 404)])
def test_object_that_is_gone_is_no_longer_own(verb: str, status: int) -> None:
    found = Observations()
    found.add(request("get"), 200, (seen(waits_for="it waits"),))
    found.add(request(verb), status, ())
    assert (found.own, found.waiting) == ({}, {})
    assert found.names(A, "")


def test_the_last_response_decides() -> None:
    found = Observations()
    found.add(request("get"), 200, (seen(waits_for="it waits"),))
    found.add(request("get"), 200, (seen(),))
    assert found.waiting == {}
    found.add(request("get"), 200, (seen(is_own=False),))
    assert found.own == {}


def test_scale_is_not_the_object() -> None:
    """The response to a request for the scale has the object's name, but not its owners."""
    found = Observations()
    found.add(request("get"), 200, (seen(),))
    found.add(request("patch", subresource="scale"), 200, (seen(is_own=False),))
    assert found.own == {A: Own("v1", "uid-a", has_uid_in_mark=False)}


@pytest.mark.parametrize("subresource", ["status", "scale"])
@pytest.mark.parametrize("verb", ["get", "patch", "update"])
def test_object_without_a_subresource_exists(verb: str, subresource: str) -> None:
    """For a subresource that a kind doesn't have, the API server says that the object wasn't found."""
    found = Observations()
    found.add(request("get"), 200, (seen(),))
    found.add(request(verb, subresource=subresource), 404, ())
    assert found.own == {A: Own("v1", "uid-a", has_uid_in_mark=False)}


def test_dry_run_names_what_it_would_change_and_owns_nothing() -> None:
    created, deleted = Observations(), Observations()
    created.add(request("create", "", is_dry_run=True), 201, (seen(),))
    deleted.add(request("delete", is_dry_run=True), 200, None)
    for found in (created, deleted):
        assert (found.own, found.names(A, "")) == ({}, True)


@pytest.mark.parametrize("status", [0, 401, 403, 408, 429, 500, 503])
def test_response_that_says_nothing_is_a_doubt(status: int) -> None:
    found = Observations()
    found.add(request("get"), status, None)
    assert found.doubts


@pytest.mark.parametrize("status", [200, 201, 304, 409, 415, 422])
def test_response_of_modules_that_try_is_no_doubt(status: int) -> None:
    found = Observations()
    found.add(request("patch"), status, None)
    assert not found.doubts


def test_watch_that_its_client_ends_is_no_doubt() -> None:
    found = Observations()
    found.add(request("watch", ""), 0, None)
    assert not found.doubts
    assert found.names(A, "")


def test_kind_that_is_not_served_is_a_doubt() -> None:
    for each in (request("list", ""), request("create", ""), request("create"), request("get")):
        found = Observations()
        found.add(each, 404, None)
        assert found.doubts
    found = Observations()
    found.add(request("get"), 404, ())
    assert not found.doubts


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_object_made_for_another_primary_is_noted_at_once_if_it_is_requested_by_name(*, is_dry_run: bool) -> None:
    """Its primary's operator must not delete it while the run lasts."""
    shared: set[tuple[ObjectId, str]] = set()
    found = Observations(shared=shared)
    found.add(request("list", ""), 200, (seen("b", made_for="another"),))
    assert not shared
    found.add(request("get", is_dry_run=is_dry_run), 200, (seen(made_for="another"),))
    assert (shared, found.others) == ({(A, "another")}, {A: Other("v1", "uid-a", "another")})


def test_object_of_a_primary_that_does_not_exist_is_not_remembered() -> None:
    """Nothing is pruned for it, and nothing would ever end the memory; its mark is removed all the same."""
    found = Observations(primaries={"present"})
    found.add(request("get"), 200, (seen(made_for="gone"),))
    found.add(request("get", "b"), 200, (seen("b", made_for="present"),))
    assert found.shared == {(A._replace(name="b"), "present")}
    assert found.others.keys() == {A, A._replace(name="b")}


@pytest.mark.parametrize(
    ("info", "status", "is_unseen"),
    [
        (request("get"), 200, True),
        (request("patch", subresource="scale"), 200, True),
        (request("patch"), 409, True),
        (request("create"), 409, True),
        (request("watch"), 200, True),
        (request("delete"), 403, True),
        (request("delete"), 200, False),
        (request("get"), 404, False),
        (request("list", ""), 200, False),
    ],
)
def test_object_whose_mark_no_response_has_shown_must_be_read_after_the_run(
    info: RequestInfo, status: int, *, is_unseen: bool
) -> None:
    found = Observations()
    found.add(info, status, None)
    assert (A in found.unseen) is is_unseen
    found.add(request("get"), 200, (seen(),))
    assert not found.unseen
