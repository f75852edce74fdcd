"""The mark of what a run creates: written only with proof of the creation, and after that only ever lost."""

from typing import Any

import pytest
from aiohttp import web

from rolecall.kube.references import RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION, PRUNE_ANNOTATION, without_marks_in
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAPS, MERGE, REFERENCE, Run, config_map

CM = f"{CONFIG_MAPS}/cm"
PODS = "/api/v1/namespaces/ns/pods"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
FORGED = "uid-of-one:/ConfigMap:ns/another"
CREATIONS = pytest.mark.parametrize(
    ("method", "path", "headers"), [("POST", CONFIG_MAPS, {}), ("PUT", CM, {}), ("PATCH", CM, APPLY)]
)
WRITES = pytest.mark.parametrize(("method", "headers"), [("PUT", {}), ("PATCH", APPLY)])


def mark_of(obj: RawObject) -> str | None:
    """Return the mark of an object."""
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(MADE_FOR_ANNOTATION)


@pytest.fixture
def marking(run: Run) -> Run:
    """Return a run of a role that prunes."""
    run.itself.prunes = True
    return run


@pytest.mark.parametrize("given", [None, FORGED])
async def test_post_of_a_role_that_never_prunes_has_the_mark_whatever_the_role_wrote(
    run: Run, api_server: ApiServer, given: str | None
) -> None:
    """Without the uid, which nobody knows yet; a role that gets the task later can prune the object then."""
    annotations = {} if given is None else {MADE_FOR_ANNOTATION: given}
    await run.send("POST", CONFIG_MAPS, json=config_map(annotations=annotations))
    assert mark_of(api_server.objects[CM]) == f"{REFERENCE['uid']}:/ConfigMap:ns/cm"


@pytest.mark.parametrize("word", ["true", "false", None])
async def test_word_of_the_author_decides_about_other_kinds(run: Run, api_server: ApiServer, word: str | None) -> None:
    metadata = {"name": "s"} | ({} if word is None else {"annotations": {PRUNE_ANNOTATION: word}})
    await run.send("POST", PODS, json={"kind": "Pod", "metadata": metadata})
    assert (mark_of(api_server.objects[f"{PODS}/s"]) is not None) is (word == "true")


@pytest.mark.parametrize(
    ("query", "metadata"),
    [
        ("?dryRun=All", {}),
        ("", {"name": None, "generateName": "x-"}),
        ("", {"annotations": {"rolecall.dev/adopt": "true"}}),
        ("", {"annotations": {"rolecall.dev/adopt": "false"}}),
        ("", {"annotations": {"meta.helm.sh/release-name": "x"}}),
        ("", {"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
        ("", {"annotations": {PRUNE_ANNOTATION: "false"}}),
    ],
)
@pytest.mark.parametrize("prunes", [True, False])
async def test_creation_of_what_is_never_pruned_gets_no_mark_and_loses_that_of_the_role(
    run: Run, api_server: ApiServer, query: str, metadata: dict[str, Any], *, prunes: bool
) -> None:
    run.itself.prunes = prunes
    annotations = {MADE_FOR_ANNOTATION: FORGED, **metadata.get("annotations", {})}
    obj = config_map(**{**metadata, "annotations": annotations})
    obj["metadata"] = {name: value for name, value in obj["metadata"].items() if value is not None}
    await run.send("POST", CONFIG_MAPS + query, json=obj)
    assert mark_of(api_server.last.json) is None


@CREATIONS
@pytest.mark.parametrize("given", [None, FORGED])
async def test_creation_is_marked_by_a_patch_and_answered_with_the_marked_object(  # noqa: PLR0913 - as the cases
    marking: Run, api_server: ApiServer, method: str, path: str, headers: dict[str, str], *, given: str | None
) -> None:
    """The mark has the uid that the API server has given to the object."""
    annotations = {} if given is None else {MADE_FOR_ANNOTATION: given}
    response = await marking.send(method, path, json=config_map(annotations=annotations), headers=headers)
    assert response.status == 201
    uid = api_server.objects[CM]["metadata"]["uid"]
    assert mark_of(response.json()) == mark_of(api_server.objects[CM]) == f"{REFERENCE['uid']}:/ConfigMap:ns/cm:{uid}"
    patch = api_server.last
    assert (patch.method, patch.json["metadata"]["uid"]) == ("PATCH", api_server.objects[CM]["metadata"]["uid"])
    assert patch.target.endswith("?fieldManager=rolecall")
    assert marking.itself.written[-1] == response.json()


@CREATIONS
async def test_role_gets_its_own_object_if_the_mark_cannot_be_written(
    marking: Run, api_server: ApiServer, method: str, path: str, headers: dict[str, str]
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        if "merge" in request.headers["Content-Type"]:
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        return api_server._objects(request, api_server.last)

    api_server.handlers["PATCH", CM] = refuse
    response = await marking.send(method, path, json=config_map(), headers=headers)
    assert (response.status, mark_of(response.json())) == (201, None)


@CREATIONS
async def test_new_object_is_marked_although_its_controller_writes_its_status_at_once(
    marking: Run, api_server: ApiServer, method: str, path: str, headers: dict[str, str]
) -> None:
    statuses = iter(range(2))

    async def interfere(request: web.Request) -> web.Response:
        if "merge" in request.headers["Content-Type"] and (number := next(statuses, None)) is not None:
            api_server.objects[CM]["status"] = {"observed": number}
            api_server.objects[CM]["metadata"]["resourceVersion"] = api_server._next_version()
        return api_server._objects(request, api_server.last)

    api_server.handlers["PATCH", CM] = interfere
    response = await marking.send(method, path, json=config_map(), headers=headers)
    assert (response.status, response.json()["status"]) == (201, {"observed": 1})
    assert mark_of(response.json()) == mark_of(api_server.objects[CM])
    assert mark_of(response.json()) is not None


@CREATIONS
async def test_role_that_never_prunes_sends_no_further_request(
    run: Run, api_server: ApiServer, method: str, path: str, headers: dict[str, str]
) -> None:
    await run.send(method, path, json=config_map(), headers=headers)
    assert [each.method for each in api_server.writes()] == [method]


@pytest.mark.parametrize("mark", [None, "uid-of-one:/ConfigMap:ns/cm"])
async def test_put_repeats_the_mark_and_the_word_of_the_user_and_sets_none(
    marking: Run, api_server: ApiServer, mark: str | None
) -> None:
    kept = {PRUNE_ANNOTATION: "false"} | ({} if mark is None else {MADE_FOR_ANNOTATION: mark})
    api_server.add(CM, name="cm", annotations=kept)
    for given in ({}, {MADE_FOR_ANNOTATION: FORGED}):
        await marking.send("PUT", CM, json=config_map(annotations=given))
        assert api_server.last.json["metadata"].get("annotations") == kept


async def test_null_for_the_word_of_the_user_in_a_put_repeats_it(run: Run, api_server: ApiServer) -> None:
    """The API server would store an empty value."""
    api_server.add(CM, name="cm", annotations={PRUNE_ANNOTATION: "false"})
    await run.send("PUT", CM, json=config_map(annotations={PRUNE_ANNOTATION: None}))
    assert api_server.last.json["metadata"]["annotations"] == {PRUNE_ANNOTATION: "false"}


@pytest.mark.parametrize("headers", [MERGE, {"Content-Type": "application/strategic-merge-patch+json"}, APPLY])
async def test_no_patch_sets_a_mark(marking: Run, api_server: ApiServer, headers: dict[str, str]) -> None:
    api_server.add(CM, name="cm")
    await marking.send("PATCH", CM, json=config_map(annotations={MADE_FOR_ANNOTATION: FORGED}), headers=headers)
    assert mark_of(api_server.last.json) is None


async def test_merge_patch_removes_no_word_by_leaving_it_out_of_a_definition(run: Run, api_server: ApiServer) -> None:
    """A client such as kubectl, and ``apply: true``, send a null for what the last applied definition had."""
    api_server.add(CM, name="cm", annotations={PRUNE_ANNOTATION: "false"})
    for word, sent in ((None, {}), ("true", {PRUNE_ANNOTATION: "true"})):
        await run.send("PATCH", CM, json={"metadata": {"annotations": {PRUNE_ANNOTATION: word}}}, headers=MERGE)
        assert api_server.last.json["metadata"]["annotations"] == sent


@pytest.mark.parametrize("headers", [MERGE, {"Content-Type": "application/strategic-merge-patch+json"}])
async def test_null_for_all_annotations_removes_only_the_others(
    marking: Run, api_server: ApiServer, headers: dict[str, str]
) -> None:
    """A template with ``annotations:`` and no value sends it, in each run."""
    kept = {PRUNE_ANNOTATION: "false", MADE_FOR_ANNOTATION: "uid-of-one:/ConfigMap:ns/cm"}
    api_server.add(CM, name="cm", annotations={"of-a-user": "1", **kept})
    body = {"metadata": {"annotations": None, "labels": {"a": "b"}}, "data": {"annotations": "x"}}
    await marking.send("PATCH", CM, json=body, headers=headers)
    annotations = {"of-a-user": None, PRUNE_ANNOTATION: "false"}
    assert api_server.last.json["metadata"]["annotations"] == annotations
    assert api_server.last.json["metadata"]["labels"] == {"a": "b"}
    assert api_server.last.json["data"] == {"annotations": "x"}


def test_json_patch_sets_no_mark() -> None:
    path = "/metadata/annotations/rolecall.dev~1made-for"
    other = {"op": "add", "path": "/metadata/labels/a", "value": "b"}
    remove = {"op": "remove", "path": path}
    operations = [
        {"op": "add", "path": path, "value": FORGED},
        {"op": "copy", "from": "/metadata/labels/a", "path": path},
        other,
        remove,
        {"op": "add", "path": "/metadata/annotations", "value": {MADE_FOR_ANNOTATION: FORGED, "a": "b"}},
        5,
    ]
    kept = [other, remove, {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}, 5]
    assert without_marks_in(operations) == kept


async def test_refused_creation_names_its_object(run: Run, api_server: ApiServer) -> None:
    """The object exists, so the role uses it, whoever made it."""
    named: list[str] = []
    run.itself.name = named.append
    api_server.respond("POST", CONFIG_MAPS, {"kind": "Status", "code": 409, "reason": "AlreadyExists"}, 409)
    await run.send("POST", CONFIG_MAPS, json=config_map())
    assert named == ["cm"]
