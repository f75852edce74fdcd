"""The commands that a kept demo suggests work: their files exist, and the edited sample differs."""

import io
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from rich.console import Console

from rolecall.kube.references import GVK
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.project.demo import (
    Options,
    next_steps,
    open_page,
    remedy,
    run_demo,
    write_edited_sample,
)
from rolecall.workbench.project.demo_inputs import OperatorProcess
from rolecall.workbench.project.demo_runs import RunLog


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


KIND = GVK("example.com", "v1", "Site")


def sample(kind: str = "Site", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}


def steps(records: Path, edited: Path | None = None, *, programs: Path = Path("/bin"), page: str = "") -> str:
    """Return the next steps for a kept demo."""
    plane = SimpleNamespace(name="demo", kubeconfig=Path("/k"), program_directory=programs)
    operator = SimpleNamespace(log=Path("/log"), pid=7, runs=RunLog(page))
    kinds = (KIND, GVK("", "v1", "Pod"))
    return next_steps(cast("ControlPlane", plane), cast("OperatorProcess", operator), records, kinds, edited)


def test_the_first_number_in_the_spec_of_a_sample_is_raised(tmp_path: Path) -> None:
    samples = [sample("Other", size=1), sample(on=True, pool={"size": 3}, other=5)]
    written = write_edited_sample(samples, [KIND], tmp_path / "edited.yaml")

    assert written is not None
    assert yaml.safe_load(written.read_text())["spec"] == {"on": True, "pool": {"size": 4}, "other": 5}
    assert samples[1]["spec"]["pool"] == {"size": 3}


def test_samples_without_a_number_are_not_edited(tmp_path: Path) -> None:
    assert write_edited_sample([sample(on=True), sample()], [KIND], tmp_path / "edited.yaml") is None
    assert not list(tmp_path.iterdir())


def test_the_commands_name_the_newest_record_and_the_edited_sample(tmp_path: Path) -> None:
    for name in ("2026-1.jsonl", "2026-2.failed.jsonl"):
        (tmp_path / name).touch()
    text = steps(tmp_path, Path("/edited.yaml"))

    assert f"rolecall record show {tmp_path}/2026-2.failed.jsonl\n" in text
    assert "rolecall plan -f /edited.yaml\n" in text
    assert f"rolecall rbac --from {tmp_path}\n" in text
    assert "kubectl get site.example.com,pod --all-namespaces\n" in text


def test_printed_path_has_every_program_of_the_commands(tmp_path: Path) -> None:
    (tmp_path / "kubectl").touch(mode=0o755)
    text = steps(tmp_path, programs=tmp_path)
    (line,) = [line for line in text.splitlines() if "export PATH=" in line]
    path = line.partition("=")[2].split("#")[0].strip().removesuffix(":$PATH")
    assert all(shutil.which(program, path=path) for program in ("kubectl", "rolecall"))


def test_missing_file_is_not_suggested(tmp_path: Path) -> None:
    text = steps(tmp_path)

    assert "rolecall plan" not in text
    assert "record show" not in text


@pytest.fixture
def project(tmp_path: Path) -> Options:
    """Return the options of a demo whose project has one definition and one sample."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "b"}}
    (tmp_path / "definitions.yaml").write_text(yaml.safe_dump(account))
    (tmp_path / "samples.yaml").write_text(yaml.safe_dump(sample()))
    until = [{"path": "$.status.ready", "equals": True}]
    goal = {"apiVersion": "example.com/v1", "kind": "Site", "columns": [], "until": until}
    script = {"definitions": ["definitions.yaml"], "samples": ["samples.yaml"], "goals": [goal]}
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(script))
    return Options(tmp_path, "taken", keep=True, state_directory=tmp_path / "state")


@pytest.mark.parametrize("is_plane_running", [True, False])
def test_demo_leaves_a_kept_demo_of_its_name_alone(
    project: Options, output: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, is_plane_running: bool
) -> None:
    """A demo stops only what it has started; the control plane of the kept one may have crashed."""
    assert project.state_directory is not None
    log = project.state_directory / "taken" / "operator.log"
    log.parent.mkdir(parents=True)
    log.write_text("of the kept demo")
    monkeypatch.setattr(ControlPlane, "is_running", lambda _plane: is_plane_running)
    monkeypatch.setattr(ControlPlane, "stop", lambda _plane: pytest.fail("the kept demo was stopped"))
    command = [sys.executable, "-uc", "print(); input()", "run"]
    environment = {**os.environ, "KUBECONFIG": str(log.parent / "kubeconfig")}
    with subprocess.Popen(
        command, start_new_session=True, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as operator:
        assert operator.stdout
        operator.stdout.readline()  # for a moment after its start, a process has no command line
        with pytest.raises(ControlPlaneError, match=f"kill {operator.pid}; rolecall cluster stop --name taken$"):
            run_demo(project, Console(file=output))
        assert operator.poll() is None
        operator.communicate(b"\n")
    assert log.read_text() == "of the kept demo"
    if is_plane_running:  # without its operator, as after: rolecall cluster start
        with pytest.raises(ControlPlaneError, match=r"uses it: rolecall cluster stop --name taken$"):
            run_demo(project, Console(file=output))


@pytest.mark.parametrize(
    ("environment", "is_terminal", "opened"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({"DISPLAY": ":0"}, False, False),
        ({}, True, False),
        ({"DISPLAY": ""}, True, False),
    ],
)
def test_the_page_is_opened_only_for_somebody_at_a_desktop(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    is_terminal: bool,  # noqa: FBT001 - a parameter of a test
    opened: bool,  # noqa: FBT001 - as above
) -> None:
    shown: list[str] = []

    def show(page: str) -> bool:
        shown.append(page)
        return True

    monkeypatch.setattr("webbrowser.open", show)
    assert open_page("http://127.0.0.1:1/", environment, is_terminal=is_terminal) is opened
    assert bool(shown) is opened


def test_the_address_of_the_page_is_told(tmp_path: Path) -> None:
    assert "\nLook at it: http://127.0.0.1:1/\n" in steps(tmp_path, page="http://127.0.0.1:1/")
    assert "Look at it" not in steps(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_does_not_interrupt_a_request_of_the_client(number: signal.Signals) -> None:
    """The client's connections have locks, which an exception at any point could leave held."""
    script = f"""
import os, signal, time
from rolecall.cli.terminal import interrupted_by_signals
from rolecall.workbench.project.demo import apply_in_thread
signal.signal(signal.SIGINT, signal.default_int_handler)
class Applier:
    def apply(self, objects):
        os.kill(os.getpid(), {int(number)})
        time.sleep(0.5)
        print("applied", objects)
        return []
try:
    with interrupted_by_signals():
        apply_in_thread(Applier(), ["one"])
        print("not reached")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("applied ['one']\ninterrupted\n", "")


def crd(kind: str) -> dict[str, Any]:
    spec = {"group": "example.com", "names": {"kind": kind}}
    metadata = {"name": f"{kind}s.example.com".lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def started(options: Options, output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a demo up to the start of its control plane, and return what it printed."""

    def start(_plane: ControlPlane) -> bool:
        raise ControlPlaneError("no control plane here")

    monkeypatch.setattr(ControlPlane, "start", start)
    with pytest.raises(ControlPlaneError, match="no control plane here"):
        run_demo(options, Console(file=output, width=200))
    return output.getvalue()


def test_demo_names_samples_of_unwatched_kinds(
    project: Options, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = project.project
    account = yaml.safe_load((directory / "definitions.yaml").read_text())
    (directory / "definitions.yaml").write_text(yaml.safe_dump_all([account, crd("Site"), crd("Page")]))
    page = {**sample("Page"), "metadata": {"name": "two", "namespace": "here"}}
    (directory / "samples.yaml").write_text(yaml.safe_dump_all([sample(), page, sample("Elsewhere")]))
    (directory / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Site, role: x}\n")
    assert started(project, output, monkeypatch) == (
        "Not waiting for Page here/two: the kind Page of example.com/v1 isn't in watches.yaml\n"
    )


def test_demo_without_a_watched_kind_does_not_start(project: Options, output: io.StringIO) -> None:
    (project.project / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Other, role: x}\n")
    with pytest.raises(ValueError, match=r"no kind of the goals in .*demo.yaml is in watches.yaml: add one$"):
        run_demo(project, Console(file=output, width=200))
    assert output.getvalue() == "Not waiting for any Site: the kind Site of example.com/v1 isn't in watches.yaml\n"


@pytest.mark.parametrize("text", [None, "- [", "- 1", "kind: Site"])
def test_unreadable_watches_file_is_left_to_the_operator(
    project: Options, output: io.StringIO, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        (project.project / "watches.yaml").write_text(text)
    assert started(project, output, monkeypatch) == ""


def test_definitions_without_an_account_are_reported(project: Options, output: io.StringIO) -> None:
    (project.project / "definitions.yaml").write_text(yaml.safe_dump(crd("Site")))
    with pytest.raises(ValueError, match="definitions contain no ServiceAccount"):
        run_demo(project, Console(file=output))


@pytest.mark.parametrize("text", ["- 1", "kind: Site", "{apiVersion: v1, kind: Site, metadata: 3}", "text"])
def test_document_that_is_no_object_is_reported(project: Options, output: io.StringIO, text: str) -> None:
    (project.project / "samples.yaml").write_text(text)
    with pytest.raises(
        ValueError, match=r"samples.yaml: expected objects with apiVersion, kind, and metadata.name, found"
    ):
        run_demo(project, Console(file=output))


def test_records_that_cannot_be_written_are_reported_before_the_start(project: Options, output: io.StringIO) -> None:
    with pytest.raises(FileExistsError):
        run_demo(replace(project, records=project.project / "demo.yaml"), Console(file=output))
    assert output.getvalue() == ""


def test_remedy_lists_commands_for_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert remedy(Options(tmp_path)).splitlines()[-3:] == [
        "  rolecall demo --record-dir records",
        "  rolecall rbac --from records --write",
        "  rolecall demo",
    ]
    assert remedy(Options(tmp_path / "other place", "web")).splitlines()[-4:] == [
        f"  cd '{tmp_path}/other place'",
        "  rolecall demo --name web --record-dir records",
        "  rolecall rbac --from records --write",
        "  rolecall demo --name web",
    ]
