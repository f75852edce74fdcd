"""Requests that the proxy changes or forwards unchanged, compared with direct requests to the API server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.forward import send
from tests.integration.proxied import Run, config_map
from tests.support.world import CONFIG_MAP, DEPLOYMENT, TIMEOUT_SECONDS, eventually, names

API_SERVICE = GVK("apiregistration.k8s.io", "v1", "APIService")
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Asking:
    """The same request, once through the proxy and once directly."""

    def __init__(self, run: Run, session: aiohttp.ClientSession) -> None:
        self.run, self._session = run, session
        self.path = f"/api/v1/namespaces/{run.world.namespace}/configmaps"

    async def proxy(self, method: str, target: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Send a request through the proxy; a body other than bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        async with self._session.request(method, target, data=data, headers=given) as answer:
            return answer.status, await answer.read()

    async def api_server(self, method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
        """Send a request to the API server itself."""
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        async with await send(self.run.world.client, method, target, given, data=body) as answer:
            return await answer.read()


@pytest.fixture
async def asking(run: Run) -> AsyncIterator[Asking]:
    headers = {"Authorization": f"Bearer {run.credentials.secret}"}
    async with aiohttp.ClientSession(run.proxy.url, headers=headers) as session:
        yield Asking(run, session)


def owners(obj: RawObject) -> list[str]:
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences", [])]


async def test_whatever_kubectl_does_works(run: Run) -> None:
    """create, get, get -w, label, patch, scale, rollout, apply and delete; what is created is owned."""
    code, output = await run.kubectl("create", "deployment", "web", "--image=none")
    assert code == 0, output
    assert owners(await run.world.get(DEPLOYMENT, "web")) == [run.itself.owner.uid]
    for arguments in (
        ("label", "deployment", "web", "tier=front"),
        ("annotate", "deployment", "web", "a=b"),
        ("scale", "deployment", "web", "--replicas=2"),
        ("set", "image", "deployment/web", "none=other"),
        ("rollout", "status", "deployment", "web", "--timeout=600s"),
        ("get", "deployments,pods", "-o", "wide"),
        ("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"),
        ("describe", "deployment", "web"),
        ("explain", "deployment.spec"),
        ("api-resources",),
        ("auth", "can-i", "create", "pods"),
        ("wait", "--for=condition=Available", "deployment/web", "--timeout=600s"),
        ("delete", "deployment", "web", "--wait=true"),
    ):
        code, output = await run.kubectl(*arguments)
        assert code == 0, f"{arguments}: {output}"
    assert await run.world.find(DEPLOYMENT, "web") is None


async def test_a_watch_of_kubectl_ends_with_the_run(run: Run) -> None:
    async with run.process(*run.kubectl_command("get", "configmaps", "-w", "-o", "name")) as process:
        assert process.stdout is not None
        for name in ("first", "second"):
            await run.world.client.create(config_map(run.world, name))
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while name not in (await process.stdout.readline()).decode():
                    pass
        await run.proxy.revoke(run.itself)
        await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)


async def test_object_created_in_protobuf_is_owned(asking: Asking) -> None:
    """The body comes from the API server itself: what it would have created."""
    text = json.dumps(config_map(asking.run.world, "binary", finalizers=["example.com/none"])).encode()
    body = await asking.api_server("POST", f"{asking.path}?dryRun=All", text, Accept=PROTOBUF)
    assert body.startswith(b"k8s\x00")
    status, answer = await asking.proxy("POST", asking.path, body, Content_Type=PROTOBUF, Accept=PROTOBUF)
    assert (status, answer[:4]) == (201, b"k8s\x00")
    metadata = await asking.run.metadata("binary")
    assert owners({"metadata": metadata}) == [asking.run.itself.owner.uid]
    assert metadata["finalizers"] == ["example.com/none"]
    await asking.run.world.patch(CONFIG_MAP, "binary", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("oddity", "header"),
    [
        ("{path}/", ""),
        ("/{path}", ""),
        ("/api//v1/namespaces/{namespace}/configmaps", ""),
        ("/api/v1/namespaces/{namespace}%2Fconfigmaps", ""),
        ("/api/v1/namespaces/other/../{namespace}/configmaps", ""),
        ("/api/v1/namespaces/%2e%2e/namespaces/{namespace}/configmaps", ""),
        ("/%61pi/v1/namespaces/{namespace}/%63onfigmaps", ""),
        ("{path};a=b", ""),
        ("{path}?watch=true", ""),
        ("{path}", "Upgrade: websocket\r\nConnection: Upgrade"),
        ("{path}", "Content-Encoding: identity"),
        ("{path}", "Content-Encoding: gzip"),
        ("{path}", "X-HTTP-Method-Override: GET"),
        ("{path}#fragment", ""),
        ("http://elsewhere.example.com{path}", ""),
    ],
)
async def test_no_oddity_creates_what_nobody_owns(asking: Asking, oddity: str, header: str) -> None:
    """Each is sent letter by letter; the API server rejects it, or the object is there and owned."""
    run = asking.run
    target = oddity.format(path=asking.path, namespace=run.world.namespace)
    body = json.dumps(config_map(run.world, "odd")).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(run.proxy.url.rpartition(":")[2]))
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {run.credentials.secret}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *filter(None, [header]),
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    status = int((await asyncio.wait_for(reader.readline(), TIMEOUT_SECONDS)).split()[1])
    writer.close()
    found = await run.world.find(CONFIG_MAP, "odd")
    assert (status == 201) == (found is not None)
    assert found is None or owners(found) == [run.itself.owner.uid]


async def test_lists_tables_and_watches_are_the_api_servers(asking: Asking) -> None:
    world = asking.run.world
    await world.wait_for(CONFIG_MAP, "kube-root-ca.crt", bool)  # else it may be created between two equal requests
    for number in range(5):
        await world.client.create(config_map(world, f"cm{number}", labels={"half": str(number % 2)}))
    settled = [f"{asking.path}/cm0", f"{asking.path}?labelSelector=half%20in%20(1)", f"{asking.path}?limit=2"]
    settled += [f"{asking.path}?fieldSelector=metadata.name%3Dcm3", f"{asking.path}?labelSelector=half!=1&limit=500"]
    for target in settled:
        for accept in (
            "application/json",
            TABLE,
            PROTOBUF,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ):
            _, through = await asking.proxy("GET", target, Accept=accept)
            direct = await asking.api_server("GET", target, Accept=accept)
            assert without_position(through) == without_position(direct)
    found: list[str] = []
    token = ""
    while True:
        _, answer = await asking.proxy("GET", f"{asking.path}?limit=2&labelSelector=half&continue={token}")
        page = json.loads(answer)
        found += names(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert found == [f"cm{number}" for number in range(5)]
    target = f"{asking.path}?watch=true&timeoutSeconds=5&fieldSelector=metadata.name%3Dcm3"
    _, answer = await asking.proxy("GET", target)
    events = [json.loads(line) for line in answer.splitlines()]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "cm3")]


def without_position(answer: bytes) -> Any:
    """Return an answer without what differs from one moment to the next: a list's version and token, and ages."""
    if not answer.startswith(b"{"):
        return len(answer)
    content = json.loads(answer)
    if "items" in content or "rows" in content:
        content["metadata"].pop("resourceVersion", None)
        content["metadata"].pop("continue", None)
    for index, column in enumerate(content.get("columnDefinitions", [])):
        if column["name"] == "Age":
            for row in content["rows"]:
                row["cells"][index] = None
    return content


async def test_a_group_whose_server_is_gone_spoils_nothing_else(asking: Asking, tmp_path: Any) -> None:
    """Its requests get the API server's own answer; kubectl and modules continue to work for all other kinds."""
    run = asking.run
    group = f"{run.world.namespace}.example.com"
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1.{group}"},
        "spec": {
            "group": group,
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "gone", "namespace": run.world.namespace},
        },
    }
    await run.world.client.create(service)
    try:
        path = f"/apis/{group}/v1/namespaces/{run.world.namespace}/things"

        async def answers() -> int:
            return (await asking.proxy("POST", path, {"metadata": {"name": "one"}}))[0]

        await eventually(
            answers, lambda status: status == 503, TIMEOUT_SECONDS, "the group answers that it is not there"
        )
        code, output = await run.kubectl("apply", "-f", "-", text=json.dumps(config_map(run.world, "applied")))
        assert code == 0, output
        assert await run.owners("applied") == [run.itself.owner.uid]
        playbook = tmp_path / "playbook.yml"
        task = {"kubernetes.core.k8s": {"definition": config_map(run.world, "by-module")}}
        playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
        program = f"{sys.executable.rpartition('/')[0]}/ansible-playbook"
        code, output = await run.command(
            program, str(playbook), "-e", f"ansible_python_interpreter={sys.executable}", HOME=str(tmp_path)
        )
        assert code == 0, output
        assert await run.owners("by-module") == [run.itself.owner.uid]
    finally:
        await run.world.client.delete(API_SERVICE, ObjectKey("", f"v1.{group}"))


LEASE = GVK("coordination.k8s.io", "v1", "Lease")
WITHOUT_VERSION: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PUT", "application/json", {}),
    ("PUT", "application/json", {"resourceVersion": ""}),
    ("PUT", "application/json", {"resourceVersion": "0"}),
    ("PUT", "application/json", {"resourceVersion": None}),
    ("PATCH", "application/merge-patch+json", {}),
    ("PATCH", "application/merge-patch+json", {"resourceVersion": None}),
    ("PATCH", "application/strategic-merge-patch+json", {"resourceVersion": None}),
)


async def test_write_without_version_succeeds_only_if_the_api_server_accepts_it(asking: Asking) -> None:
    """A Lease rejects an update without a version, a ConfigMap accepts it."""
    run = asking.run
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{run.world.namespace}/leases/odd"
    statuses: dict[str, set[int]] = {}
    for gvk, path, changed in ((LEASE, lease, "spec"), (CONFIG_MAP, f"{asking.path}/odd", "data")):
        obj = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": "odd"}}
        await run.world.client.create(obj | {"metadata": {"name": "odd", "namespace": run.world.namespace}})
        for number, (method, content_type, version) in enumerate(WITHOUT_VERSION):
            for encoding in ("utf-8", "utf-16"):
                content = {"spec": {"leaseTransitions": number}, "data": {"a": str(number)}}[changed]
                body = json.dumps(obj | {"metadata": {"name": "odd"} | version, changed: content}).encode(encoding)
                expected = json.loads(
                    await asking.api_server(method, f"{path}?dryRun=All", body, Content_Type=content_type)
                )
                status, answer = await asking.proxy(method, path, body, Content_Type=content_type)
                case = (gvk.kind, method, version, encoding)
                assert (case, status) == (case, expected.get("code", 200))
                assert status == 200 or json.loads(answer)["message"] == expected["message"]
                statuses.setdefault(gvk.kind, set()).add(status)
    assert 422 in statuses["Lease"]
    assert 422 not in statuses["ConfigMap"]


async def test_update_without_version_is_the_runs_own_change(asking: Asking) -> None:
    await asking.run.world.client.create(config_map(asking.run.world, "plain"))
    status, answer = await asking.proxy("PUT", f"{asking.path}/plain", config_map(asking.run.world, "plain", "2"))
    assert status == 200
    assert asking.run.noted() == [json.loads(answer)["metadata"]["resourceVersion"]]


async def test_only_a_real_deletion_is_the_runs_own(asking: Asking) -> None:
    """The API server itself shows, for each body and query, whether it reads them as a dry run."""
    run = asking.run
    dry, real = b'{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}', b'{"kind":"DeleteOptions"}'
    protobuf = b"k8s\x00\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x05\x2a\x03All"
    bodies = ((dry, "application/json"), (b"dryRun: [All]", "application/yaml"), (protobuf, PROTOBUF))
    for number, (body, content_type) in enumerate((*bodies, (b"", ""), (real, "application/json"))):
        for query in ("", "?dryRun=All"):
            name = f"cm{number}{len(query)}"
            uid = (await run.world.client.create(config_map(run.world, name)))["metadata"]["uid"]
            status, answer = await asking.proxy(
                "DELETE",
                f"{asking.path}/{name}{query}",
                body,
                Content_Type=content_type or "application/json",
                Authorization=f"Bearer {run.credentials.secret}",
            )
            assert status == 200, answer
            is_gone = await run.world.find(CONFIG_MAP, name) is None
            assert (body, query, uid in run.itself.removed) == (body, query, is_gone)
    assert len(run.itself.removed) == 3


async def test_server_side_apply_of_kubectl_stores_only_what_was_applied(run: Run) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "1"}})
    for arguments in (("create",), ("apply",), ("apply", "--server-side")):
        code, output = await run.kubectl(*arguments, "-f", "-", text=text)
        assert code == 0, output
    stored = (await run.metadata("map"))["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert "resourceVersion" not in stored
