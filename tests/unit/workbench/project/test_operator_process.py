import json
import sys
from pathlib import Path

import pytest

from rolecall.workbench.project.demo_inputs import OperatorProcess


@pytest.fixture
def operator(tmp_path: Path) -> OperatorProcess:
    """Give an operator that was not started, with an empty log."""
    (tmp_path / "operator.log").touch()
    return OperatorProcess(tmp_path, tmp_path / "kubeconfig", tmp_path / "operator.log")


def line(**fields: str) -> str:
    """Return one line of a log."""
    return json.dumps(fields) + "\n"


def test_each_run_that_ended_is_noted_once_its_line_is_whole(operator: OperatorProcess) -> None:
    first = line(kind="Foo", namespace="default", name="one", took="350ms")
    operator.log.write_text(first[:20])
    operator.read_log()
    assert operator.last_runs == {}
    operator.log.write_text(first + "Traceback\n[1]\n\n" + line(msg="Watching", kind="Foo", name="one"))
    operator.read_log()
    assert operator.last_runs == {("Foo", "default/one"): "350ms"}


def test_the_last_run_of_an_object_counts(operator: OperatorProcess) -> None:
    for took in ("1s", "2s"):
        with operator.log.open("a") as log:
            log.write(line(kind="Node", name="one", took=took))
        operator.read_log()
    assert operator.last_runs == {("Node", "one"): "2s"}


def test_the_tail_is_the_end_of_the_log(operator: OperatorProcess) -> None:
    operator.log.write_text("".join(f"{number}\n" for number in range(30)))
    assert operator.tail(3) == "27\n28\n29"


def test_an_operator_that_was_not_started_has_no_process(operator: OperatorProcess) -> None:
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = operator.pid
    assert not operator.has_ended
    operator.stop()


def pretend(operator: OperatorProcess, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a Python program instead of the operator; it gets the operator's arguments."""
    script = operator.project / "python"
    script.write_text(f"#!{sys.executable}\nimport os, signal, sys\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    operator.start()


def wait_for(operator: OperatorProcess, text: str) -> None:
    """Wait until a text is in the log."""
    assert operator._process is not None
    while text not in operator.log.read_text():
        assert operator._process.poll() is None, operator.log.read_text()


def test_the_operator_runs_in_its_project_with_its_kubeconfig_and_is_asked_to_end(
    operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "print(os.getcwd(), os.environ['KUBECONFIG'], *sys.argv[1:], flush=True)\nsignal.pause()"
    pretend(operator, program, monkeypatch)
    wait_for(operator, "json")
    where, kubeconfig, *arguments = operator.log.read_text().split()
    assert (where, kubeconfig) == (str(operator.project), str(operator.kubeconfig))
    assert arguments == ["-m", "rolecall", "run", "--zap-encoder", "json"]
    assert operator.pid > 0
    assert not operator.has_ended
    operator.stop()
    assert operator.has_ended
    operator.stop()


def test_an_operator_that_does_not_listen_is_killed(operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecall.workbench.project.demo_inputs.STOP_SECONDS", 0.1)
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: signal.pause()"
    pretend(operator, program, monkeypatch)
    wait_for(operator, "deaf")
    operator.stop()
    assert operator.has_ended


def test_an_operator_that_ended_by_itself_is_seen(operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(operator, "print('bye', flush=True)", monkeypatch)
    assert operator._process is not None
    operator._process.wait(10)
    assert operator.has_ended


def test_the_address_of_the_live_page_is_read_from_the_log(operator: OperatorProcess) -> None:
    operator.log.write_text('{"msg":"Serving the live page","url":"http://127.0.0.1:7/"}\n{"msg":"other","url":"no"}\n')
    operator.read_log()
    assert operator.page == "http://127.0.0.1:7/"
