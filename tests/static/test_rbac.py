"""The permissions of deploy/rbac against what the runner and the tasks of the roles do.

`needed` is what must be granted, `possible` is the most that may be: a task that makes sure that an object is there
reads and creates it, and only some roles also change it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.static.repository import action, documents, plural, role_file, tasks, watches

Permissions = dict[tuple[str, str], set[str]]

DOCUMENTS = documents("deploy/rbac/*.yaml") + documents("deploy/components/podcount/*.yaml")
OF_ROLES = {"rolecall": {"podscaler", "hikawa", "foo"}, "rolecall-podcount": {"podcount"}}


def granted(name: str) -> Permissions:
    permissions: Permissions = defaultdict(set)
    (role,) = [each for each in DOCUMENTS if each["metadata"]["name"] == name and "rules" in each]
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                permissions[group, resource] |= set(rule["verbs"])
    return permissions


def resource_of(api_version: str, kind: str, subresource: str = "") -> tuple[str, str]:
    return api_version.rpartition("/")[0], plural(kind) + subresource


def manifests(role: str) -> list[dict[str, Any]]:
    values = role_file(role, "vars/main.yml").values()
    return [value for value in values if isinstance(value, dict) and {"kind", "metadata"} <= set(value)]


def by_runner(entry: dict[str, Any]) -> Iterator[tuple[tuple[str, str], set[str]]]:
    api_version, kind = f"{entry['group']}/{entry['version']}", entry["kind"]
    yield resource_of(api_version, kind), {"get", "list", "watch"}
    if entry.get("manageStatus", True):
        yield resource_of(api_version, kind, "/status"), {"update"}
    for trigger in entry["triggers"]:
        yield (trigger.get("group", ""), plural(trigger["kind"])), {"list", "watch"}
    for manifest in manifests(entry["role"]):
        yield resource_of(manifest["apiVersion"], manifest["kind"]), {"list", "watch"}
        yield resource_of(api_version, kind, "/finalizers"), {"update"}


def by_task(task: dict[str, Any], role: str) -> Iterator[tuple[tuple[str, str], set[str], set[str]]]:
    """Yield the resources of a task with the verbs that it needs and those that it may need besides."""
    arguments = task[action(task)]
    match action(task):
        case "kubernetes.core.k8s_info":
            verb = "get" if "name" in arguments else "list"
            yield resource_of(arguments["api_version"], arguments["kind"]), {verb}, set()
        case "kubernetes.core.k8s_json_patch":
            yield resource_of(arguments["api_version"], arguments["kind"]), {"get", "patch"}, set()
        case "kubernetes.core.k8s" if arguments["state"] != "present":
            verb = {"absent": "delete", "patched": "patch"}[arguments["state"]]
            yield resource_of(arguments["api_version"], arguments["kind"]), {"get", verb}, set()
        case "kubernetes.core.k8s":
            for manifest in manifests(role):
                needed = {"create"} | ({"get"} if "name" in manifest["metadata"] else set())
                yield resource_of(manifest["apiVersion"], manifest["kind"]), needed, {"patch"}
        case "rolecall.util.k8s_status":
            yield resource_of(arguments["api_version"], arguments["kind"]), {"get"}, set()
            yield resource_of(arguments["api_version"], arguments["kind"], "/status"), {"update"}, set()
        case "rolecall.util.k8s_event":
            yield ("", "events"), {"get", "create", "patch"}, set()


def used(roles: set[str]) -> tuple[Permissions, Permissions]:
    needed: Permissions = defaultdict(set)
    possible: Permissions = defaultdict(set)
    for entry in watches():
        if entry["role"] in roles:
            for resource, verbs in by_runner(entry):
                needed[resource] |= verbs
    for role in roles:
        for task in tasks(of=role):
            for resource, verbs, more in by_task(task, role):
                needed[resource] |= verbs
                possible[resource] |= more
    return needed, {resource: verbs | possible[resource] for resource, verbs in needed.items()}


@pytest.mark.parametrize("name", OF_ROLES)
def test_permissions_needed_by_runner_and_roles_are_granted(name: str) -> None:
    needed, _ = used(OF_ROLES[name])
    permissions = granted(name)
    missing = {resource: verbs - permissions[resource] for resource, verbs in needed.items()}
    assert {resource: verbs for resource, verbs in missing.items() if verbs} == {}


@pytest.mark.parametrize("name", OF_ROLES)
def test_every_granted_permission_is_used(name: str) -> None:
    _, possible = used(OF_ROLES[name])
    excess = {resource: verbs - possible.get(resource, set()) for resource, verbs in granted(name).items()}
    assert {resource: verbs for resource, verbs in excess.items() if verbs} == {}


def test_every_watched_role_is_in_one_of_the_cluster_roles() -> None:
    assert set().union(*OF_ROLES.values()) == {entry["role"] for entry in watches()}


@pytest.mark.parametrize("name", OF_ROLES)
def test_a_cluster_role_is_bound_to_the_service_account(name: str) -> None:
    bindings = [each for each in DOCUMENTS if each["kind"] == "ClusterRoleBinding"]
    (binding,) = [each for each in bindings if each["roleRef"]["name"] == name]
    (account,) = [each for each in documents("deploy/rbac/*.yaml") if each["kind"] == "ServiceAccount"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account["metadata"]}]
