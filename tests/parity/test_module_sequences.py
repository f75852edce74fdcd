"""Modules that share a process do the same as in processes of their own, in any order, also after failures.

Two sequences are a small sample: ``ROLECALL_MODULE_SEQUENCES`` requests more, ``ROLECALL_FIRST_SEED`` others.
"""

import os
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.runner.warm.ansible_patches.patches import VARIABLE
from tests.parity.cases import Case
from tests.parity.conftest import NAMES, Pair, start_warm
from tests.parity.stage import CONTENT, Stage
from tests.parity.test_cluster import client, control_plane, objects, primary_in

__all__ = ["client", "control_plane"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
FIRST = int(os.environ.get("ROLECALL_FIRST_SEED", "1"))
SEQUENCES = int(os.environ.get("ROLECALL_MODULE_SEQUENCES", "2"))
TASKS = 30

NAMESPACE = "{{ ansible_operator_meta.namespace }}"
NAMES_OF_OBJECTS = "abc"


def write_sequence(seed: int, directory: Path) -> str:
    """Write a playbook with modules in random order, none of whose failures ends it; return its tasks as text."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    tasks = [
        {"name": f"Task {number}", "ignore_errors": True, "register": f"result_{number}", **_task(chance)}
        for number in range(TASKS)
    ]
    text = yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}], sort_keys=False)
    directory.mkdir()
    (directory / "site.yml").write_text(text)
    return text


def _task(chance: random.Random) -> dict[str, Any]:
    name, value = chance.choice(NAMES_OF_OBJECTS), str(chance.randint(1, 3))
    config_map = {"api_version": "v1", "kind": "ConfigMap", "name": name, "namespace": NAMESPACE}
    deployment = config_map | {
        "api_version": "apps/v1",
        "kind": "Deployment",
    }  # none exists: its controller takes turns
    metadata = {"name": name, "namespace": NAMESPACE}
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
    k8s, info, json_patch = (f"kubernetes.core.{each}" for each in ("k8s", "k8s_info", "k8s_json_patch"))
    return chance.choice(
        [
            {k8s: {"definition": definition}},
            {k8s: {"definition": definition, "apply": True}},
            {k8s: {"definition": definition, "apply": True, "server_side_apply": {"field_manager": "x"}}},
            {k8s: {"definition": definition}, "check_mode": True},  # a diff has times
            {k8s: {**config_map, "state": "absent"}},
            {k8s: {"definition": {**definition, "metadata": {"name": "No_Name", "namespace": NAMESPACE}}}},
            {k8s: {**config_map, "name": "{{ item }}", "state": "patched"}, "loop": ["a", "b"]},
            {k8s: {"definition": definition, "host": "https://127.0.0.1:1", "api_key": "x", "validate_certs": False}},
            {k8s: {"definition": definition, "kubeconfig": "/nowhere"}},
            {k8s: {"definition": definition, "impersonate_user": "nobody"}},
            {k8s: {"definition": definition}, "environment": {"A": "b"}},
            {k8s: {"unknown": 1}},
            {info: config_map},
            {info: {"kind": "ConfigMap", "namespace": NAMESPACE}, "no_log": True},
            {info: {"api_version": "nowhere.example.com/v1", "kind": "Nothing"}},
            {info: config_map, "until": "result is succeeded", "retries": 1, "delay": 0},
            {json_patch: {**config_map, "patch": [{"op": "add", "path": "/data/x", "value": value}]}},
            {json_patch: {**config_map, "patch": [{"op": "test", "path": "/data/x", "value": "9"}]}},
            {"kubernetes.core.k8s_scale": {**deployment, "replicas": int(value), "wait": False}},
            {"kubernetes.core.k8s_service": {"name": name, "namespace": NAMESPACE, "ports": [{"port": int(value)}]}},
            {"kubernetes.core.k8s_log": {"name": "nothing", "namespace": NAMESPACE}},
            {"kubernetes.core.k8s_rollback": deployment},
            {"kubernetes.core.k8s_taint": {"name": "nothing", "taints": [{"key": "a", "effect": "NoSchedule"}]}},
            {"rolecall.util.requeue_after": {"time": f"{value}h"}},
            {"ansible.builtin.command": {"argv": ["echo", value]}},
            {"ansible.builtin.set_fact": {"fact": value}},
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEQUENCES))
async def test_modules_of_one_process_do_the_same_as_forked_ones(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    tasks = write_sequence(seed, tmp_path / "content")
    case = Case(name=str(tmp_path / "content"), rule="a module finds nothing of the one before it")
    async with AsyncExitStack() as stack:
        forked = await stack.enter_async_context(start_warm(CONTENT))
        monkeypatch.setenv(VARIABLE, "module-host")
        hosted = await stack.enter_async_context(start_warm(CONTENT))
        pair = Pair(Stage(forked, start_warm, tmp_path / NAMES[0]), Stage(hosted, start_warm, tmp_path / NAMES[1]))
        worlds = []
        for stage, name in zip((pair.cold, pair.warm), NAMES, strict=True):
            (tmp_path / "access" / name).mkdir(parents=True)
            world, stage.grants = await stack.enter_async_context(primary_in(client, tmp_path / "access" / name))
            stage.own = {world.namespace: "<namespace>", str(tmp_path / "access" / name): "<access>"}
            stage.places = {"ansible_operator_meta": {"name": "primary", "namespace": world.namespace}}
            worlds.append(world)
        seen = await pair.run(case)
        expected, found = [replace(run, objects=await objects(world)) for run, world in zip(seen, worlds, strict=True)]
    assert pair.differences(expected, found, case) == [], tasks
    assert len(expected.raw_events) > 2 * TASKS, "it has come to its end"
