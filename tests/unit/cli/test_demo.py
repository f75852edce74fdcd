from pathlib import Path

import pytest

from rolecall.cli.main import main


def test_a_directory_without_a_demo_is_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--project", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"rolecall demo: file '{tmp_path}/demo.yaml' not found; "
        "run this command in the directory of a project, or use --project"
    )


@pytest.mark.parametrize("arguments", [("demo", "--timeout", "soon"), ("cluster", "start", "--nodes", "many")])
def test_a_value_that_cannot_be_meant_names_the_flag_and_shows_the_value(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert f"argument {arguments[-2]}: " in line
    assert repr(arguments[-1]) in line
