import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.cli import ansible_operator
from rolecall.cli.ansible_operator import main
from rolecall.cli.run import ansible_operator_settings
from rolecall.runner import operator as operator_module
from rolecall.runner.config.settings import Settings
from tests.support.things import write_project

PROGRAM = Path(sys.executable).with_name("ansible-operator")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave neither variables nor a logging set-up behind."""
    for variable in ("ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH", "WATCH_NAMESPACE", "OPERATOR_NAME"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Replace the operator by one that exits immediately; return its arguments."""
    settings_seen: list[Settings] = []

    async def run_operator(settings: Settings, *_: Any, **__: Any) -> None:
        settings_seen.append(settings)

    monkeypatch.setattr(operator_module, "run_operator", run_operator)
    monkeypatch.setattr(
        "rolecall.runner.election.lease_guard.start_guard", lambda: None
    )  # it would replace this process
    write_project(tmp_path, "[]\n")
    monkeypatch.chdir(tmp_path)
    return settings_seen


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the program on a command line that it refuses with exit code 1; return what it says."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_run_has_the_go_runners_defaults(started: list[Settings]) -> None:
    assert main(["run"]) == 0
    assert started == [ansible_operator_settings()]


def test_positional_arguments_are_ignored(started: list[Settings]) -> None:
    assert main(["run", "one", "--leader-elect", "false", "--", "--more"]) == 0
    assert started[0].leader_elect is True


@pytest.mark.parametrize("flag", ["--config=x", "--max-workers=3", "-x"])
def test_an_unknown_flag_shows_the_usage_and_is_exit_code_1(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused("run", flag, capsys=capsys)
    assert f"unknown flag: {flag.partition('=')[0]}" in text
    assert "usage: ansible-operator" in text


def test_a_bad_value_is_exit_code_1_and_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--reconcile-period: not a duration: 'soon'" in refused("run", "--reconcile-period=soon", capsys=capsys)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (("--leader-elect", "--enable-leader-election"), ("--leader-elect ", "--enable-leader-election ")),
        (("--metrics-addr=:1", "--metrics-bind-address=:1"), ("--metrics-addr ", "--metrics-bind-address,")),
    ],
)
def test_both_names_of_a_flag_are_refused(
    flags: tuple[str, ...], names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused("run", *flags, capsys=capsys)
    assert "invalid flags usage" in text
    assert all(name.strip(" ,") in text for name in names)


@pytest.mark.parametrize(("flag", "setting"), [("--enable-leader-election", "leader_elect"), ("--metrics-addr=x", "")])
def test_an_old_name_still_works(flag: str, setting: str, started: list[Settings]) -> None:
    assert main(["run", flag]) == 0
    assert getattr(started[0], setting) is True if setting else started[0].metrics_bind_address == "x"


def test_metrics_for_those_who_may_read_them_need_https(
    started: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused("run", "--metrics-require-rbac", capsys=capsys)
    assert "--metrics-secure flag is required when --metrics-require-rbac is present" in text
    assert main(["run", "--metrics-require-rbac", "--metrics-secure"]) == 0
    assert started[0].metrics_require_rbac


def test_an_unknown_choice_of_events_is_told_of_and_means_tasks(started: list[Settings]) -> None:
    with capture_logs() as logs:
        assert main(["run", "--ansible-log-events=loud"]) == 0
    assert started[0].log_events == "tasks"
    assert ("error", "unrecognized log level", "loud") in [
        (line["log_level"], line["event"], line.get("value")) for line in logs
    ]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: ansible-operator" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("run", "-h")])
def test_there_is_help(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert "usage: ansible-operator" in capsys.readouterr().out


def test_help_shows_the_defaults_of_this_name_and_hides_old_names() -> None:
    text = re.sub(r"\s+", " ", _help_of_run())
    assert "(default: 8888)" in text
    assert "(default: /tmp/ansible-operator/runner)" in text
    assert "--leader-elect[=BOOL] " in text
    assert "--ansible-log-events nothing|tasks|results|everything " in text
    assert "--enable-leader-election" not in text


def _help_of_run() -> str:
    [commands] = [action for action in ansible_operator.parser()._actions if action.dest == "==SUPPRESS=="]
    assert isinstance(commands.choices, dict)
    text: str = commands.choices["run"].format_help()
    return text


def test_the_version_is_one_line_of_the_go_runners_form() -> None:
    done = subprocess.run([PROGRAM, "version"], capture_output=True, text=True, check=True)
    names = ("version", "commit", "kubernetes version", "go version", "GOOS", "GOARCH")
    assert re.fullmatch("ansible-operator " + ", ".join(f'{name}: "[^"]+"' for name in names) + "\n", done.stdout)


def test_the_program_is_installed_under_its_name_and_logs_json(tmp_path: Path) -> None:
    (tmp_path / "watches.yaml").write_text("[]")
    environment = os.environ | {"KUBECONFIG": "nowhere"}
    done = subprocess.run(
        [PROGRAM, "run", "--metrics-addr=0", "--health-probe-bind-address=0", "--proxy-port=0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    notice, *_, last = map(json.loads, done.stderr.splitlines())
    assert notice["msg"] == "Flag --metrics-addr has been deprecated, use --metrics-bind-address instead"
    assert (last["level"], last["logger"], last["msg"]) == ("error", "cmd", "Proxy or operator exited with error.")
    assert "no usable configuration" in last["error"]


def test_a_wrong_watches_file_is_an_error_in_the_log_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "watches.yaml").write_text("- {version: v1, kind: A}")
    done = subprocess.run([PROGRAM, "run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = map(json.loads, done.stderr.splitlines())
    assert (line["level"], line["logger"], line["msg"]) == ("error", "cmd", "Failed to load watches.")
    assert line["error"] == "watches.yaml: entry 1 (kind A), key role (line 1): must specify Role or Playbook"


def test_the_old_variable_names_the_lease_unless_the_flag_does(
    started: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR_NAME", "old")
    assert main(["run"]) == 0
    assert main(["run", "--leader-election-id=new"]) == 0
    assert [settings.leader_election_id for settings in started] == ["old", "new"]


def test_ansible_operator_has_ports_paths_and_times_of_the_go_runner() -> None:
    settings = ansible_operator_settings()
    assert (settings.proxy_port, settings.user_metrics_port) == (8888, 5050)
    assert (settings.health_probe_bind_address, settings.metrics_bind_address) == (":6789", ":8443")
    assert settings.work_directory == Path("/tmp/ansible-operator/runner")  # noqa: S108 - a part of the interface
    assert settings.kubeconfig_directory == Path(tempfile.gettempdir())  # TMPDIR, or /tmp
    assert (settings.backoff_min_seconds, settings.backoff_max_seconds) == (0.005, 1000)
    assert (settings.grace_seconds, settings.reconcile_period_seconds) == (30, 36000)
    assert (settings.ready_conditions, Settings().ready_conditions) == (False, True)
    assert (settings.moves_changed_conditions, Settings().moves_changed_conditions) == (True, False)
    assert (settings.follows_status_fields, Settings().follows_status_fields) == (True, False)
    assert (settings.allow_broken_conditionals, Settings().allow_broken_conditionals) == (True, False)
