from pathlib import Path

import pytest

from rolecall.cli.main import main


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_written_files_and_next_steps_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--domain", "example.com", "web"]) == 0
    text = capsys.readouterr().out
    listed = {line.split()[1] for line in text.splitlines() if line.startswith("  created")}
    assert listed == {str(path.relative_to("web")) for path in Path("web").rglob("*") if path.is_file()}
    assert text.endswith("make demo\n")
    assert "  cd web\n" in text


def test_a_kind_is_added_from_outside_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "--domain", "example.com", "web"])
    line = "create api --project web --group shop --version v1 --kind Website"
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    assert "  extended watches.yaml\n" in text
    assert "edit roles/website/tasks/main.yml" in text
    assert "kind: Website" in Path("web/watches.yaml").read_text()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("init --domain example.com Web", "rolecall init: NAME: expected at most 40 lower case letters"),
        ("init --domain _ web", "rolecall init: --domain: expected a DNS name"),
        (
            "create api --group a --version v1 --kind A --generate-role",
            "rolecall create api: PROJECT: file not found",
        ),
    ],
)
def test_impossible_command_is_one_error_and_exit_code_1(
    line: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 1
    assert capsys.readouterr().err.startswith(error)
    assert list(Path().iterdir()) == []
