"""The roles of the page about patterns: each keeps the promise of its section, on an operator with a single slot."""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import annotation_of, metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION
from rolecall.runner.runs.variables import extra_vars
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.components import RESPONSES_LABEL
from tests.integration.conftest import wait_until_ready
from tests.integration.crash_tests import crash_test_of
from tests.integration.example_projects import PATTERNS
from tests.integration.operators import EVERY_NAMESPACE, PROJECT, Operator
from tests.integration.planned import Project, clear, primary
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.support.world import CONFIG_MAP, DEPLOYMENT, TIMEOUT_SECONDS, World, condition, eventually, is_true, names

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

SECRET = GVK("", "v1", "Secret")
JOB = GVK("batch", "v1", "Job")
INGRESS = GVK("networking.k8s.io", "v1", "Ingress")
WRITTEN = (CONFIG_MAP, SECRET, DEPLOYMENT, JOB, INGRESS)
"""The kinds that the roles write."""

SPECS: dict[str, dict[str, Any]] = {
    "WebServer": {"greeting": "Hello"},
    "Database": {"version": "17"},
    "Application": {"version": "1.0"},
    "Shop": {"host": "shop.example.com"},
    "Gateway": {"certificate": "certificate"},
    "Announcement": {"text": "Hello", "publishAt": "2026-01-01T00:00:00Z"},
}
CERTIFICATE: RawObject = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "certificate"},
    "stringData": {"tls.crt": "a certificate"},
}
ACCEPTS = {"patterns.example.com/accepts-secrets": "true"}
ONE_SLOT = ("--max-concurrent-reconciles", "1", "--max-concurrent-runs", "1")
PLAYBOOK = """
- name: Run a role once
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Run the role
      ansible.builtin.include_role:
        name: "{{ role }}"
"""


def kind(name: str) -> GVK:
    return GVK("patterns.example.com", "v1", name)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project."""
    return shutil.copytree(PATTERNS.path, tmp_path_factory.mktemp("patterns") / "project")


@pytest.fixture(scope="module")
def patterns(defined: ControlPlane, project: Path) -> Iterator[Operator]:
    """Yield the project's operator, which can do a single run at a time."""
    operator = Operator(project, defined.kubeconfig, EVERY_NAMESPACE, ONE_SLOT)
    operator.start()
    yield operator
    assert operator.stop() == 0


@dataclass(frozen=True, slots=True)
class Subject:
    """An object of one kind in the namespace of a test."""

    operator: Operator
    world: World
    kind: str
    name: str = "web"

    async def create(self, **spec: Any) -> None:
        await self.world.create(yaml.safe_dump(primary(kind(self.kind), self.name, **(spec or SPECS[self.kind]))))

    async def change(self, **spec: Any) -> None:
        await self.world.patch(kind(self.kind), self.name, {"spec": spec})

    async def _has_condition(self, status: str, reason: str = "") -> None:
        """Wait until a run for the current spec has ended with this condition ``Ready``."""

        def holds(obj: RawObject) -> bool:
            ready = condition(obj, "Ready")
            is_current = ready.get("observedGeneration") == metadata_of(obj)["generation"]
            return is_current and ready["status"] == status and reason in ("", ready["reason"])

        await self.world.wait_for(kind(self.kind), self.name, holds)

    async def becomes_ready(self) -> None:
        """Wait until a run for the current spec has made it ready."""
        await self._has_condition("True")

    async def waits(self, reason: str) -> None:
        """Wait until a run for the current spec has reported why the object isn't ready."""
        await self._has_condition("False", reason)

    def ended(self) -> int:
        """Count its runs that have ended."""
        place = {"kind": self.kind, "namespace": self.world.namespace, "name": self.name}
        return len(self.operator.messages("Reconcile succeeded", **place)) + len(
            self.operator.messages("Reconcile failed", **place)
        )

    async def is_reconciled_again(self) -> None:
        """Request another run and wait for its end."""
        before = self.ended()
        annotation = {"rolecall.dev/reconcile-requested-at": uuid.uuid4().hex}
        await self.world.patch(kind(self.kind), self.name, {"metadata": {"annotations": annotation}})

        async def look() -> int:
            return self.ended()

        await eventually(look, lambda ended: ended > before, TIMEOUT_SECONDS, f"another run of {self.kind}")

    async def deployment(self) -> RawObject:
        return await self.world.get(DEPLOYMENT, self.name)

    async def image(self) -> str:
        """Return the image of its pods, empty without a Deployment."""
        found = await self.world.find(DEPLOYMENT, self.name)
        return str(found["spec"]["template"]["spec"]["containers"][0]["image"]) if found else ""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The operator, and the namespace of a test."""

    operator: Operator
    world: World

    def __call__(self, kind_name: str, name: str = "web") -> Subject:
        return Subject(self.operator, self.world, kind_name, name)


@pytest.fixture
async def subjects(patterns: Operator, world: World) -> AsyncIterator[Subjects]:
    """Yield the kinds in the test's own namespace, once the operator works."""
    await wait_until_ready(patterns)
    yield Subjects(patterns, world)
    for name in SPECS:
        for each in names(await world.objects(kind(name))):
            await world.delete(kind(name), each)


async def written(world: World) -> dict[tuple[str, str], Any]:
    """Return the objects in the namespace that clients have written: identities, generations, and content."""
    return {
        (gvk.kind, metadata_of(obj)["name"]): (
            metadata_of(obj)["uid"],
            metadata_of(obj).get("generation"),
            obj.get("spec") or obj.get("data"),
        )
        for gvk in WRITTEN
        for obj in await world.objects(gvk)
        if metadata_of(obj)["name"] != "kube-root-ca.crt"
    }


async def add_certificate(world: World) -> None:
    await world.create(yaml.safe_dump(CERTIFICATE))


async def settled(subjects: Subjects, name: str) -> Subject:
    """Return an object of a kind that is ready."""
    await add_certificate(subjects.world)
    subject = subjects(name)
    await subject.create()
    await subject.becomes_ready()
    return subject


async def changes_in_check_mode(subject: Subject, plane: ControlPlane, directory: Path) -> int:
    """Run a role in check mode for an object and return the number of changes that it would make."""
    obj = await subject.world.get(kind(subject.kind), subject.name)
    role = subject.operator.directory / "roles" / subject.kind.lower()
    variables = extra_vars(obj, Watch(GVK.of_object(obj), RoleContent(role)))
    (directory / "once.yml").write_text(PLAYBOOK)
    (directory / "variables.json").write_text(json.dumps({**variables, "role": str(role)}))
    command = (str(Path(sys.executable).with_name("ansible-playbook")), "once.yml", "--check", "-e", "@variables.json")
    environment = {
        **os.environ,
        "K8S_AUTH_KUBECONFIG": str(plane.kubeconfig),
        "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / "src/rolecall/collections"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"changed=(\d+)", done.stdout)[-1])


@pytest.mark.parametrize("name", SPECS)
async def test_check_mode_predicts_changes_and_writes_nothing(
    subjects: Subjects, control_plane: ControlPlane, tmp_path: Path, name: str
) -> None:
    await add_certificate(subjects.world)
    paused = primary(kind(name), "web", **SPECS[name])
    paused["metadata"]["annotations"] = {"rolecall.dev/paused": "true"}
    await subjects.world.create(yaml.safe_dump(paused))
    before = await written(subjects.world)
    assert await changes_in_check_mode(subjects(name), control_plane, tmp_path) > 0
    assert await written(subjects.world) == before


@pytest.mark.parametrize("name", SPECS)
async def test_second_run_changes_nothing(
    subjects: Subjects, control_plane: ControlPlane, tmp_path: Path, name: str
) -> None:
    subject = await settled(subjects, name)
    before = await written(subjects.world)
    await subject.is_reconciled_again()
    assert await written(subjects.world) == before
    assert await changes_in_check_mode(subject, control_plane, tmp_path) == 0


async def test_only_a_change_of_the_configuration_changes_the_pod_template(subjects: Subjects) -> None:
    server = await settled(subjects, "WebServer")
    first = (await server.deployment())["spec"]["template"]

    await server.change(replicas=2)
    await server.becomes_ready()
    scaled = (await server.deployment())["spec"]
    assert (scaled["replicas"], scaled["template"]) == (2, first)

    await server.change(greeting="Good morning")
    await server.becomes_ready()
    second = (await server.deployment())["spec"]["template"]
    assert second["metadata"]["annotations"] != first["metadata"]["annotations"]
    assert second["spec"] == first["spec"]

    await server.change(greeting="Hello")
    await server.becomes_ready()
    assert (await server.deployment())["spec"]["template"] == first


async def test_pods_restart_for_a_key_that_another_client_adds_to_the_configuration(subjects: Subjects) -> None:
    server = await settled(subjects, "WebServer")
    first = (await server.deployment())["spec"]["template"]["metadata"]["annotations"]
    await subjects.world.patch(CONFIG_MAP, "web-config", {"data": {"robots.txt": "Disallow: /"}})
    await subjects.world.wait_for(
        DEPLOYMENT, "web", lambda obj: obj["spec"]["template"]["metadata"]["annotations"] != first
    )


async def test_password_survives_reconciles_a_lost_status_and_a_new_version(subjects: Subjects) -> None:
    database = await settled(subjects, "Database")
    first = await subjects.world.get(SECRET, "web-password")
    for _ in range(3):
        await database.is_reconciled_again()
    await subjects.world.patch(kind("Database"), "web", {"status": None}, "status")
    await database.is_reconciled_again()
    await database.change(version="18")
    await database.becomes_ready()
    assert await database.image() == "postgres:18"
    last = await subjects.world.get(SECRET, "web-password")
    assert (metadata_of(last)["uid"], last["data"]) == (metadata_of(first)["uid"], first["data"])


async def test_passwords_are_long_and_different_and_not_in_the_log(subjects: Subjects) -> None:
    for name in ("one", "two"):
        database = subjects("Database", name)
        await database.create()
        await database.becomes_ready()
    secrets = [await subjects.world.get(SECRET, f"{name}-password") for name in ("one", "two")]
    passwords = {base64.b64decode(secret["data"]["password"]).decode() for secret in secrets}
    assert len(passwords) == 2
    assert {len(password) for password in passwords} == {32}
    log = subjects.operator.log_file.read_text()
    encoded = {secret["data"]["password"] for secret in secrets}
    assert [text for text in passwords | encoded if text in log] == []


async def test_another_password_is_rejected(subjects: Subjects) -> None:
    await settled(subjects, "Database")
    with pytest.raises(KubeError, match="immutable"):
        await subjects.world.patch(SECRET, "web-password", {"stringData": {"password": "another"}})


async def define_state(world: World, state: str) -> None:
    """Set the state of the containers of later pods of the migration."""
    data = {"responses.yaml": f"[{{pod: web-migrate-.*, {state}}}]"}
    if await world.find(CONFIG_MAP, "responses"):
        await world.patch(CONFIG_MAP, "responses", {"data": data})
        return
    metadata = {"name": "responses", "labels": {RESPONSES_LABEL: "true"}}
    await world.create(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))


async def test_new_version_runs_only_after_its_migration_has_completed(subjects: Subjects) -> None:
    world, application = subjects.world, await settled(subjects, "Application")
    assert await application.image() == "registry.example/application:1.0"

    await define_state(world, "state: Running")
    await application.change(version="2.0")
    await application.waits("Migrating")
    await world.wait_for(JOB, "web-migrate-2-0", lambda job: job.get("status", {}).get("ready") == 1)
    await application.is_reconciled_again()
    assert await application.image() == "registry.example/application:1.0"

    await define_state(world, "state: Terminated")
    for pod in await world.pods(**{"job-name": "web-migrate-2-0"}):
        await world.delete(GVK("", "v1", "Pod"), metadata_of(pod)["name"])
    await application.becomes_ready()
    assert is_true(await world.get(JOB, "web-migrate-2-0"), "Complete")
    assert await application.image() == "registry.example/application:2.0"
    await world.wait_until_gone(JOB, "web-migrate-1-0", TIMEOUT_SECONDS)


async def test_migration_to_a_third_version_waits_for_the_active_one(subjects: Subjects) -> None:
    world, application = subjects.world, await settled(subjects, "Application")
    await define_state(world, "state: Running")
    await application.change(version="2.0")
    await world.wait_for(JOB, "web-migrate-2-0", lambda job: job.get("status", {}).get("ready") == 1)
    await application.change(version="3.0")
    await application.waits("Migrating")
    await application.is_reconciled_again()
    assert "web-migrate-3-0" not in names(await world.objects(JOB))

    await define_state(world, "state: Terminated")
    for pod in await world.pods(**{"job-name": "web-migrate-2-0"}):
        await world.delete(GVK("", "v1", "Pod"), metadata_of(pod)["name"])
    await application.becomes_ready()
    assert await application.image() == "registry.example/application:3.0"


async def test_failed_migration_is_reported_and_repeated_after_its_job_is_deleted(subjects: Subjects) -> None:
    world, application = subjects.world, await settled(subjects, "Application")
    await define_state(world, "state: Terminated, exitCode: 1")
    await application.change(version="2.0")
    failed = await world.wait_for(kind("Application"), "web", lambda obj: is_true(obj, "Failure"))
    assert "The migration to 2.0 has failed" in condition(failed, "Failure")["message"]
    assert "delete the Job web-migrate-2-0" in condition(failed, "Failure")["message"]
    assert await application.image() == "registry.example/application:1.0"

    await define_state(world, "state: Terminated")
    await world.delete(JOB, "web-migrate-2-0")
    await application.becomes_ready()
    assert await application.image() == "registry.example/application:2.0"


async def test_ingress_exists_exactly_while_the_spec_has_a_host(subjects: Subjects) -> None:
    shop = await settled(subjects, "Shop")
    ingress = await subjects.world.get(INGRESS, "web")
    assert ingress["spec"]["rules"][0]["host"] == "shop.example.com"
    # What the role made for a spec that changes before a second run has named it isn't in the inventory, so it stays.
    await subjects.world.wait_for(kind("Shop"), "web", lambda obj: annotation_of(obj, INVENTORY_ANNOTATION))
    await shop.change(host=None)
    await subjects.world.wait_until_gone(INGRESS, "web", TIMEOUT_SECONDS)
    await shop.change(host="www.example.com")
    await shop.becomes_ready()
    assert (await subjects.world.get(INGRESS, "web"))["spec"]["rules"][0]["host"] == "www.example.com"


async def test_shop_without_host_does_not_delete_an_ingress_that_it_has_not_created(subjects: Subjects) -> None:
    backend = {"service": {"name": "other", "port": {"number": 80}}}
    foreign = {
        "apiVersion": INGRESS.api_version,
        "kind": INGRESS.kind,
        "metadata": {"name": "web"},
        "spec": {"defaultBackend": backend},
    }
    await subjects.world.create(yaml.safe_dump(foreign))
    shop = subjects("Shop")
    await subjects.world.create(yaml.safe_dump({**primary(kind("Shop"), "web"), "spec": {}}))
    await shop.becomes_ready()
    assert names(await subjects.world.objects(INGRESS)) == ["web"]


async def test_objects_that_wait_occupy_no_slot(subjects: Subjects) -> None:
    waiting = [subjects("Gateway", f"waiting-{number}") for number in range(3)]
    for each in waiting:
        await each.create(certificate="later")
    for each in waiting:
        await each.waits("WaitingForCertificate")
    other = await settled(subjects, "Gateway")
    assert await other.image()
    assert [await each.image() for each in waiting] == ["", "", ""]

    await subjects.world.create(yaml.safe_dump({**CERTIFICATE, "metadata": {"name": "later"}}))
    for each in waiting:
        await each.becomes_ready()
        assert await each.image()


async def test_announcement_is_published_at_its_time(subjects: Subjects) -> None:
    later = subjects("Announcement", "later")
    await later.create(text="Not yet", publishAt="2999-01-01T00:00:00Z")
    soon = (datetime.now(UTC) + timedelta(seconds=6)).replace(microsecond=0)
    announcement = subjects("Announcement", "soon")
    await announcement.create(text="Now", publishAt=soon.strftime("%Y-%m-%dT%H:%M:%SZ"))
    await announcement.becomes_ready()
    published = await subjects.world.get(CONFIG_MAP, "soon")
    assert published["data"] == {"text": "Now"}
    assert datetime.fromisoformat(metadata_of(published)["creationTimestamp"]) >= soon
    await subjects.world.wait_for(
        kind("Announcement"), "later", lambda obj: condition(obj, "Ready").get("reason") == "RunRequeued"
    )
    assert await subjects.world.find(CONFIG_MAP, "later") is None


@pytest.fixture
async def other_namespaces(subjects: Subjects) -> AsyncIterator[dict[str, World]]:
    """Yield three namespaces of which two accept Secrets, by what they are."""
    client, made = subjects.world.client, dict[str, World]()
    for name, labels in (("one", ACCEPTS), ("two", ACCEPTS), ("closed", {})):
        world = World(client, f"{name}-{uuid.uuid4().hex[:8]}")
        await client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace, "labels": labels}}
        )
        made[name] = world
    yield made
    for world in made.values():
        await client.delete(GVK("", "v1", "Namespace"), ObjectKey("", world.namespace))


async def test_secret_is_shared_with_namespaces_that_accept_it_and_follows_changes(
    subjects: Subjects, other_namespaces: dict[str, World], control_plane: ControlPlane, tmp_path: Path
) -> None:
    world, share = subjects.world, subjects("Share")
    one, two, closed = (other_namespaces[name] for name in ("one", "two", "closed"))
    copy_name = f"{world.namespace}-web"
    spec = {"secret": "certificate", "namespaces": [each.namespace for each in (one, two, closed)]}
    await share.create(**spec)
    await share.waits("WaitingForSecret")
    await add_certificate(world)
    await share.waits("NotAccepted")
    copies = [await each.wait_for(SECRET, copy_name, bool) for each in (one, two)]
    original = await world.get(SECRET, "certificate")
    assert [each["data"] for each in copies] == [original["data"]] * 2
    assert await closed.find(SECRET, copy_name) is None

    await share.change(namespaces=[one.namespace])
    await share.becomes_ready()
    await two.wait_until_gone(SECRET, copy_name, TIMEOUT_SECONDS)
    assert await changes_in_check_mode(share, control_plane, tmp_path) == 0

    await world.patch(SECRET, "certificate", {"stringData": {"tls.crt": "another"}})
    rotated = base64.b64encode(b"another").decode()
    await one.wait_for(SECRET, copy_name, lambda obj: obj["data"] == {"tls.crt": rotated})
    await one.delete(SECRET, copy_name)
    await one.wait_for(SECRET, copy_name, bool)

    await world.delete(kind("Share"), "web")
    await world.wait_until_gone(kind("Share"), "web", TIMEOUT_SECONDS)
    assert await one.find(SECRET, copy_name) is None
    assert await world.find(SECRET, "certificate") is not None


@pytest.mark.parametrize("name", SPECS)
async def test_crashtest_finds_nothing(clusters: Clusters, project: Path, name: str) -> None:
    tested = Project(project, f"crash-{uuid.uuid4().hex[:8]}")
    async with clusters.opened(tested.namespace):
        pass
    found = await crash_test_of(tested, clusters, primary(kind(name), "web", **SPECS[name]), [_copy(CERTIFICATE)])
    await clear(tested, clusters.operator)
    assert [trial for trial in found.trials if trial.verdict.value != "same"] == []
    assert len(found.trials) == len(found.writes) > 1


def _copy(obj: RawObject) -> RawObject:
    return {**obj, "metadata": dict(obj["metadata"])}


@pytest.mark.parametrize(
    "command", ["rolecall validate --strict", "rolecall generate crds --check", "ansible-lint --offline"]
)
def test_project_is_clean(project: Path, command: str) -> None:
    program, *arguments = command.split()
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        [programs / program, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
