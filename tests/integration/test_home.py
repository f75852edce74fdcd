"""A HOME that is not the one of the passwd file, as OpenShift's random users have it, is the home in every way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolecall.runs.forkserver.runner import ForkserverRunner
from rolecall.runs.subprocess_runner import SubprocessRunner
from rolecall.runs.workspace import Inputs
from tests.integration.test_runner import Bench

ROLE = """
- name: Work in the background
  ansible.builtin.command: echo done
  async: 30
  poll: 0
  register: started
- name: Wait for it
  ansible.builtin.async_status: {jid: "{{ started.ansible_job_id }}"}
  register: waited
  until: waited.finished
  retries: 100
  delay: 0.1
- name: Make a temporary folder
  ansible.builtin.copy: {content: x, dest: "{{ ansible_operator_meta.folder }}/written"}
- name: Tell
  ansible.builtin.set_stats: {data: {results: "{{ started.results_file }}", said: "{{ waited.stdout }}"}}
"""


@pytest.fixture(params=["cold", "warm"])
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    for variable in ("ANSIBLE_INVENTORY", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP", "ANSIBLE_ASYNC_DIR"):
        monkeypatch.delenv(variable, raising=False)
    if request.param == "cold":
        yield Bench(tmp_path, SubprocessRunner())
        return
    async with ForkserverRunner() as runner:
        yield Bench(tmp_path, runner)


async def test_tasks_in_the_background_are_found_below_home(bench: Bench) -> None:
    summary = await bench.run(bench.role(ROLE), Inputs({"ansible_operator_meta": {"folder": str(bench.folder)}}))
    assert summary.is_successful, summary
    home = bench.folder / "elsewhere"
    assert summary.stats["said"] == "done"
    assert Path(summary.stats["results"]).parent == home / ".ansible_async"
    assert (home / ".ansible" / "tmp").is_dir()
