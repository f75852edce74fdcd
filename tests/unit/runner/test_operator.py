import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from kubernetes.aio.config import incluster_config
from structlog.testing import capture_logs

from rolecall.kube.errors import KubeError
from rolecall.runner import operator
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.operator import readiness_checks, run_operator
from rolecall.runner.runs.process import ColdStarter, ProcessRunner
from rolecall.runner.warm.starter import ForkserverStarter
from rolecall.workbench.controlplane.certificates import CertificateAuthority
from tests.support.reconciler_rig import ScriptedRunner

STOP = """
import asyncio, time
from types import SimpleNamespace
from rolecall.runner import operator
from rolecall.cli import run
from rolecall.runner.config.settings import Settings

class Manager:
    async def run(self):
        pass

run.STOP_LIMIT_SECONDS = {limit}
asyncio.run(operator._run(SimpleNamespace(manager=Manager(), settings=Settings()), (), {on_stop}))
{rest}
"""


def test_hanging_stop_ends_with_a_traceback() -> None:
    script = STOP.format(limit=0.5, on_stop="run.limit_stop", rest="time.sleep(300)")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    # Line 14 is the sleep. A slow process may not have left the call before it.
    assert re.search(r'File "<string>", line 1[34] in <module>', ended.stderr)


def test_stop_in_time_prints_nothing() -> None:
    script = STOP.format(limit=40, on_stop="run.limit_stop", rest="")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_operator_inside_another_program_does_not_end_it() -> None:
    script = STOP.format(limit=0.2, on_stop="lambda: None", rest="time.sleep(1)")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_readiness_reports_a_fork_server_that_is_not_alive() -> None:
    manager, starter = Mock(has_settled=True, blocked_kinds={}), ForkserverStarter()
    informers, fork_server = readiness_checks(manager, Mock(spec=ProcessRunner, starter=starter))
    assert (informers.passes(), informers.is_required) == (True, True)
    assert (fork_server.passes(), fork_server.is_required) == (False, False)
    assert fork_server.line() == (
        "[!]fork-server failed: not alive; runs start in a new interpreter, which takes longer"
    )
    starter.server = Mock(is_alive=True)
    assert fork_server.line() == "[+]fork-server ok"
    starter.server, starter.has_ended_idle = None, True  # the next run starts one, and is forked
    assert fork_server.line() == "[+]fork-server ok"
    (informers,) = readiness_checks(manager, Mock(spec=ProcessRunner, starter=ColdStarter()))
    assert informers.name == "informers"


@pytest.mark.parametrize("name", ["work_directory", "record_directory", "kubeconfig_directory"])
@pytest.mark.parametrize("path", ["/proc", "/proc/records", "{file}", "{file}/below"])
async def test_directory_that_cannot_be_written_ends_the_start(name: str, path: str, tmp_path: Path) -> None:
    """Each directory of the settings is only used when a run starts or ends. Root can't write to /proc either."""
    file = tmp_path / "file"
    file.touch()
    directory = Path(path.format(file=file))
    given: dict[str, Any] = {name: directory}
    with pytest.raises(ConfigurationError, match=f"cannot write to the directory of .*{directory}"):
        await run_operator(replace(Settings(), **given), ())


@pytest.mark.parametrize("by_flag", [True, False])
async def test_start_names_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_flag: bool) -> None:
    """A wrong cluster is easily chosen: the log shows which one is used, and why."""
    path = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "https://user:planted@203.0.113.1:6443"}}
    context = {"name": "production", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "planted"}}]
    config = {"clusters": [cluster], "contexts": [context], "users": users, "current-context": "production"}
    path.write_text(yaml.safe_dump(config))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if not by_flag:
        monkeypatch.setenv("KUBECONFIG", str(path))

    def stop(*_: object, **__: object) -> None:
        raise KubeError("the rest of the start is not needed")

    monkeypatch.setattr(operator, "Proxy", stop)
    settings = replace(Settings(), kubeconfig=str(path) if by_flag else None)
    with capture_logs() as lines, pytest.raises(KubeError, match="not needed"):
        await run_operator(settings, (), ScriptedRunner())
    (line,) = [line for line in lines if line["event"] == "Using this cluster"]
    found = {name: line[name] for name in ("server", "context", "kubeconfig", "source")}
    source = "--kubeconfig" if by_flag else "KUBECONFIG"
    server = "https://203.0.113.1:6443"
    assert found == {"server": server, "context": "production", "kubeconfig": str(path), "source": source}
    assert "planted" not in str(lines)


async def test_start_in_a_pod_names_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("planted")
    (tmp_path / "ca.crt").write_bytes(CertificateAuthority("one").own.certificate)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "203.0.113.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def stop(*_: object, **__: object) -> None:
        raise KubeError("the rest of the start is not needed")

    monkeypatch.setattr(operator, "Proxy", stop)
    with capture_logs() as lines, pytest.raises(KubeError, match="not needed"):
        await run_operator(Settings(), (), ScriptedRunner())
    (line,) = [line for line in lines if line["event"] == "Using this cluster"]
    assert (line["server"], line["source"]) == ("https://203.0.113.1", "service account")
    assert "planted" not in str(lines)
