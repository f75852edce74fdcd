import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from yarl import URL

from rolecall.cli import ansible_operator
from rolecall.cli.main import main, parser
from rolecall.cli.parsing import join_flag_values, settings_of
from rolecall.cli.run import rolecall_program
from rolecall.kube.connection import Connection
from rolecall.kube.errors import KubeError
from rolecall.runner import operator as operator_module
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from tests.support.things import write_project

Program = Callable[[list[str]], int]
KUBECONFIG = """\
current-context: production
contexts: [{name: production, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://user:planted@203.0.113.1:6443"}}]
users: [{name: u, user: {token: planted}}]
"""
ROLE = "- ansible.builtin.debug: {msg: fine}\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave neither variables nor a logging set-up behind."""
    for variable in ("ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_GATHERING", "WATCH_NAMESPACE"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)


def settings(*arguments: str) -> Settings:
    """Return the settings for these flags."""
    options = parser().parse_args(["run", *join_flag_values(arguments)])
    return settings_of(options, rolecall_program().settings, os.environ)


def test_every_flag_reaches_its_setting() -> None:
    assert settings(
        "--watches-file=w.yaml",
        "--kubeconfig=k",
        "--max-concurrent-reconciles=7",
        "--reconcile-period=1m",
        "--warm-idle=10m",
        "--backoff-min=100ms",
        "--backoff-max=2m",
        "--graceful-shutdown-timeout=5s",
        "--proxy-port=8888",
        "--inject-owner-ref=false",
        "--work-dir=/work",
        "--ansible-verbosity=4",
        "--ansible-args='--tags a'",
        "--ansible-log-events=Everything",
    ) == Settings(
        watches_file=Path("w.yaml"),
        kubeconfig="k",
        workers=7,
        reconcile_period_seconds=60,
        warm_idle_seconds=600,
        backoff_min_seconds=0.1,
        backoff_max_seconds=120,
        grace_seconds=5,
        proxy_port=8888,
        inject_owner_reference=False,
        work_directory=Path("/work"),
        verbosity=4,
        ansible_args="--tags a",
        log_events="everything",
    )


def test_the_environment_names_the_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCH_NAMESPACE", "a,b")
    assert settings().namespaces == ("a", "b")


def test_the_environment_says_how_much_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VERBOSITY", "2")
    monkeypatch.setenv("ANSIBLE_DEBUG_LOGS", "true")
    assert (settings().output_verbosity, settings().debug_logs) == (2, True)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("T", True), ("1", True), ("FALSE", False), ("f", False), ("0", False)]
)
def test_a_boolean_flag_reads_what_go_reads(text: str, *, value: bool) -> None:
    assert settings(f"--inject-owner-ref={text}").inject_owner_reference is value


def test_a_boolean_flag_alone_is_true() -> None:
    assert settings("--inject-owner-ref").inject_owner_reference is True


@pytest.mark.parametrize(
    ("text", "value"), [("'a b'", "a b"), ("a", "a"), ("'", "'"), ("''", ""), ("'a", "'a"), ("", "")]
)
def test_one_pair_of_quotes_is_taken_off(text: str, value: str) -> None:
    assert settings(f"--ansible-args={text}").ansible_args == value


@pytest.mark.parametrize(
    "flag",
    [
        "--max-concurrent-reconciles=0",
        "--max-concurrent-reconciles=-1",
        "--max-concurrent-reconciles=many",
        "--reconcile-period=15",
        "--reconcile-period=soon",
        "--reconcile-period=-15s",
        "--graceful-shutdown-timeout=-1s",
        "--inject-owner-ref=maybe",
        "--ansible-log-events=some",
        "--zap-log-level=loud",
        "--proxy-port=http",
        "--proxy-port=65536",
        "--zap-time-encoding=sundial",
    ],
)
def test_a_value_that_cannot_be_meant_is_exit_code_2_and_names_the_flag(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", flag])
    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_the_period_may_be_switched_off() -> None:
    assert settings("--reconcile-period=0s").reconcile_period_seconds == 0


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, tuple[Watch, ...]]]:
    """Replace the operator by one that exits immediately; return its arguments."""
    started: list[tuple[Settings, tuple[Watch, ...]]] = []

    async def run_operator(settings: Settings, watches: tuple[Watch, ...], *_: Any, **__: Any) -> None:
        started.append((settings, watches))

    monkeypatch.setattr(operator_module, "run_operator", run_operator)
    return started


def test_the_operator_gets_settings_and_watches_and_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, ROLE)
    monkeypatch.chdir(tmp_path)
    started = stand_in(monkeypatch)
    assert main(["run", "--ansible-verbosity=1"]) == 0
    [(settings, watches)] = started
    assert settings.verbosity == 1
    assert [watch.gvk.kind for watch in watches] == ["Thing"]


@pytest.mark.parametrize("program", [main, ansible_operator.main])
def test_start_names_the_cluster_before_the_first_request(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []

    async def reject(_connection: Connection, method: str, url: URL, *_: Any, **__: Any) -> None:
        requests.append(f"{method} {url}")

    def stop(*_: Any, **__: Any) -> None:
        raise KubeError("the rest of the start is not needed")

    write_project(tmp_path, ROLE)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Connection, "send", reject)
    monkeypatch.setattr(operator_module, "Proxy", stop)
    with capture_logs() as lines:
        assert program(["run", "--warm=false", "--kubeconfig=kubeconfig", f"--work-dir={tmp_path}/work"]) == 1
    (line,) = [line for line in lines if line["event"] == "Using this cluster"]
    assert (line["server"], line["context"]) == ("https://203.0.113.1:6443", "production")
    assert requests == []
    assert "planted" not in str(lines)


def test_interrupt_that_the_operator_ignores_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C may come when all is done but for the end of the process."""

    async def run_operator(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(10)

    write_project(tmp_path, ROLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operator_module, "run_operator", run_operator)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    try:
        assert main(["run"]) == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_paths_of_flags_beat_those_of_the_environment_and_reach_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = write_project(tmp_path, ROLE)
    role.parent.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", "nowhere")
    started = stand_in(monkeypatch)
    assert main(["run", "--ansible-roles-path=elsewhere", "--ansible-collections-path=c"]) == 0
    assert started[0][1][0].content.path == tmp_path / "elsewhere" / "thing"
    assert os.environ["ANSIBLE_ROLES_PATH"].split(":")[0] == str(tmp_path / "elsewhere")
    assert os.environ["ANSIBLE_COLLECTIONS_PATH"] == str(tmp_path / "c")


def test_runs_look_for_roles_in_the_project_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, ROLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", "/mine")
    stand_in(monkeypatch)
    main(["run"])
    assert os.environ["ANSIBLE_ROLES_PATH"] == f"/mine:{tmp_path}/roles"


@pytest.mark.parametrize(
    ("program", "given", "expected"),
    [
        (main, None, "explicit"),
        (main, "smart", "smart"),
        (ansible_operator.main, None, None),
        (ansible_operator.main, "explicit", "explicit"),
    ],
)
def test_facts_are_gathered_on_request_alone_unless_the_user_or_the_go_runners_name_says_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program, given: str | None, expected: str | None
) -> None:
    write_project(tmp_path, ROLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ansible.cfg").touch()
    if given:
        monkeypatch.setenv("ANSIBLE_GATHERING", given)
    stand_in(monkeypatch)
    program(["run"])
    assert os.environ.get("ANSIBLE_GATHERING") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "watches.yaml: cannot be read: No such file or directory"),
        ("{}", "watches.yaml: expected a list of entries, found a mapping"),
        (
            "- {version: v1, kind: A, role: nowhere}",
            "watches.yaml: entry 1 (kind A), key role (line 1): role: nowhere not found",
        ),
    ],
)
def test_a_wrong_watches_file_is_one_line_and_exit_code_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    message: str,
) -> None:
    if text is not None:
        (tmp_path / "watches.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith(f"rolecall run: {message}")


def test_a_cluster_that_nothing_is_known_of_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path, ROLE)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--kubeconfig=nowhere"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("rolecall run: no usable configuration for the API server: ")


def test_a_port_that_is_taken_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path, ROLE)
    (tmp_path / "config").write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],'
        '"clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],'
        '"users": [{"name": "u", "user": {}}]}'
    )
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", "--kubeconfig=config", f"--proxy-port={port}"]) == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rolecall run: ")]
    assert str(port) in line
