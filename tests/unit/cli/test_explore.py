"""``rolecall explore`` on the command line: bad input is reported before anything starts."""

from pathlib import Path

import pytest

from rolecall.cli.main import main


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project as the working directory, whose cluster can't be reached."""
    for variable in ("ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_GATHERING", "WATCH_NAMESPACE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roles/foo/tasks").mkdir(parents=True)
    (tmp_path / "roles/foo/tasks/main.yml").write_text("[]\n")
    (tmp_path / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Foo, role: foo}\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--edits", "0"), "argument --edits: expected a positive integer, found '0'"),
        (("--edits=-3",), "argument --edits: expected a positive integer, found '-3'"),
        (("--edits", "1.5"), "argument --edits: expected a positive integer, found '1.5'"),
        (("--minutes", "0"), "argument --minutes: expected a positive number, found '0'"),
        (("--minutes=-1",), "argument --minutes: expected a positive number, found '-1'"),
        (("--minutes", "nan"), "argument --minutes: expected a positive number, found 'nan'"),
        (("--seed", "x"), "argument --seed: expected an integer, found 'x'"),
        (("--field", ""), "argument --field: expected a field of the spec"),
        (("--field", "spec."), "argument --field: expected a field of the spec"),
    ],
)
def test_invalid_value_of_a_flag_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explore", "Foo", "one", *arguments])
    assert ended.value.code == 64
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "missing.json: cannot be read: No such file or directory"),
        (b"{", "expected an example written by rolecall explore"),
        (b"\xff", "expected an example written by rolecall explore"),
        (b'{"format": 7}', "expected format 1, found 7"),
        (b'{"format": 1, "from": 3, "specs": [], "deletes": false}', "expected an example written by rolecall explore"),
    ],
)
def test_unreadable_example_is_reported_before_the_cluster_is_read(
    project: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    file = project / "missing.json"
    if content is not None:
        file.write_bytes(content)
    assert main(["explore", "Foo", "one", "--replay", str(file)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("rolecall explore: ")
    assert message in line


def test_directory_that_examples_cannot_be_written_to_is_reported_before_the_cluster_is_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "file").write_text("")
    assert main(["explore", "Foo", "one", "--examples", "file/below"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("rolecall explore: --examples file/below: cannot be written: Not a directory")


def test_directory_for_examples_does_not_remain_without_an_example(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", "Foo", "one"]) == 1
    assert not (project / "explore").exists(), capsys.readouterr().err
