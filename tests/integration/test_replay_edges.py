"""Replays of unusual runs: with a command, a finalizer's role, an answer left out, or other settings of Ansible."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.integration.shared import Role, Shared, Things
from tests.integration.test_replay import Project
from tests.support.world import TIMEOUT_SECONDS, eventually

COMMAND = """
- name: Ask a program
  ansible.builtin.command: echo from-the-program
  register: said
- name: Keep what it said
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: kept, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {said: "{{ said.stdout }}"}
"""
NOTHING = """
- name: Do nothing
  ansible.builtin.debug: {msg: nothing}
"""
BROKEN_CONDITION = """
- name: Check something with a condition that ansible-core 2.19 refuses by default
  ansible.builtin.assert: {that: ansible_operator_meta.name}
"""
CLEAN = """
- name: Note the end
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: ended, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {name: "{{ ansible_operator_meta.name }}"}
"""
COUNT = """
- name: Read much
  kubernetes.core.k8s_info:
    {api_version: v1, kind: ConfigMap, namespace: "{{ ansible_operator_meta.namespace }}", label_selectors: [much]}
  register: found
- name: Note how much it was
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: counted, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {count: "{{ found.resources | length }} of them"}
"""
SHARED = Shared(
    {
        "asks": Role(COMMAND),
        "ends": Role(NOTHING, "finalizer: {name: test.rolecall.dev/end, role: cleans}"),
        "counts": Role(COUNT),
        "depends": Role(BROKEN_CONDITION),
        "cleans": Role(CLEAN),
    },
    ("--record-dir", "FOLDER/records"),
    environment={"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"},
)
MUCH = 9
"""So many ConfigMaps of a MiB are longer than the longest answer that a record keeps."""


async def record_of(things: Things, role: str, number: int) -> Path:
    """Wait for so many records of the object of a role and return the last one."""
    start = f"*Z-{things[role].gvk.kind.lower()}-{things.world.namespace}-one-*.jsonl"

    async def look() -> list[Path]:
        return sorted((things.operator.directory / "records").glob(start))

    return (await eventually(look, lambda found: len(found) >= number, TIMEOUT_SECONDS, f"{number} records of {role}"))[
        -1
    ]


async def replay(things: Things, record: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Replay a record without a cluster; return the exit code and the result for the record."""
    project = Project(things.operator.directory)
    done = await asyncio.to_thread(project.replay, str(record), "--output", "json", *arguments)
    assert done.stdout, done.stderr
    (found,) = json.loads(done.stdout)["records"]
    return done.returncode, found


async def test_replay_ends_at_a_command_unless_permitted(things: Things) -> None:
    await things["asks"].create()
    await things["asks"].succeeds()
    record = await record_of(things, "asks", 1)
    code, found = await replay(things, record)
    assert (code, found["result"]) == (3, "complete up to a task"), found
    assert "Ask a program" in json.dumps(found)
    code, found = await replay(things, record, "--run-commands")
    assert (code, found["result"]) == (0, "same"), found


async def test_finalizer_run_is_replayed_with_its_role(things: Things) -> None:
    await things["ends"].create()
    await things["ends"].succeeds()
    await things["ends"].delete()
    await things["ends"].goes()
    record = await record_of(things, "ends", 2)
    assert "Note the end" in await asyncio.to_thread(record.read_text)
    code, found = await replay(things, record)
    assert (code, found["result"]) == (0, "same"), found
    things["ends"].write_role(CLEAN.replace("meta.name }", "meta.name | upper }"), "cleans")
    code, found = await replay(things, record)
    assert (code, found["result"]) == (2, "other writes"), found


async def test_replay_reports_a_response_missing_from_its_record(things: Things) -> None:
    data = "x" * (1 << 20)
    for number in range(MUCH):
        await things.world.create(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": f"much-{number}", "labels": {"much": "yes"}},
                    "data": {"x": data[:-1000]},
                }
            )
        )
    await things["counts"].create()
    await things["counts"].succeeds()
    record = await record_of(things, "counts", 1)
    code, found = await replay(things, record)
    assert (code, found["result"]) == (2, "other writes"), found
    assert "the list of configmaps" in json.dumps(found["questions"])


async def test_replay_uses_the_recorded_settings(things: Things) -> None:
    await things["depends"].create()
    await things["depends"].succeeds()
    record = await record_of(things, "depends", 1)
    code, found = await replay(things, record)
    assert (code, found["result"]) == (0, "same"), found
