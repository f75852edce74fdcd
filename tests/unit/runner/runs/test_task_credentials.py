"""The callback plugin that names each task in its credentials, without Ansible's executor."""

import base64
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants

from rolecall.runner.proxy.sessions import ProxyCredentials
from rolecall.runner.runs.runner_process import CALLBACK_PLUGINS

CREDENTIALS = ProxyCredentials("http://127.0.0.1:1", "the-secret", "ns")
HOST = SimpleNamespace(get_name=lambda: "web1")
Plugin = Callable[[], Any]


def task(ident: str, *, no_log: object = False) -> SimpleNamespace:
    return SimpleNamespace(_uuid=ident, no_log=no_log)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    """Return the environment of a run, and a function that loads the plugin as Ansible does."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(CREDENTIALS.kubeconfig())
    for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG"):
        monkeypatch.setenv(name, str(kubeconfig))
    monkeypatch.setenv("ROLECALL_RUN_SECRET", CREDENTIALS.secret)
    monkeypatch.setenv("ROLECALL_TASK_CREDENTIALS", "1")
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))

    def load() -> Any:
        spec = importlib.util.spec_from_file_location("task_credentials", CALLBACK_PLUGINS / "task_credentials.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.CallbackModule()

    return load


def test_task_has_its_name_in_the_secret_and_in_its_own_kubeconfig(plugin: Plugin) -> None:
    callback = plugin()
    callback.v2_runner_on_start(HOST, task("id-1"))
    name = base64.urlsafe_b64encode(b"web1").decode().rstrip("=")
    secret = f"the-secret.id-1.{name}"
    assert os.environ["KUBECONFIG"] == os.environ["K8S_AUTH_KUBECONFIG"]
    path = Path(os.environ["KUBECONFIG"])
    assert path.stat().st_mode & 0o777 == 0o600
    content = json.loads(path.read_text())
    assert content["users"][0]["user"]["token"] == secret
    assert content["clusters"][0]["cluster"]["proxy-url"] == f"http://{secret}:unused@127.0.0.1:1"


def test_credentials_between_tasks_are_those_of_the_run(plugin: Plugin) -> None:
    callback, before = plugin(), dict(os.environ)
    for end in (callback.v2_runner_on_ok, callback.v2_runner_on_failed, callback.v2_runner_on_unreachable):
        callback.v2_runner_on_start(HOST, task("id-1"))
        assert dict(os.environ) != before
        end(SimpleNamespace())
        assert dict(os.environ) == before


@pytest.mark.parametrize(("no_log", "is_marked"), [(True, True), ("{{ quiet }}", True), (False, False), (None, False)])
def test_task_with_possible_no_log_is_marked(plugin: Plugin, no_log: object, *, is_marked: bool) -> None:
    plugin().v2_runner_on_start(HOST, task("id-1", no_log=no_log))
    token = json.loads(Path(os.environ["KUBECONFIG"]).read_text())["users"][0]["user"]["token"]
    assert token.endswith(".hidden") is is_marked


def test_plugin_is_disabled_unless_the_operator_requests_it(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLECALL_TASK_CREDENTIALS")
    assert plugin().disabled
