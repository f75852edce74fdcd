"""Which contenders and sections the command line chooses; what they measure is shown by running the benchmark."""

from pathlib import Path

import pytest
from bench import suite
from bench.contenders import COLD, KOPF, PEER, WARM, contenders

PROGRAM = Path("/bin/sh")


def test_all_but_the_peer_take_part_without_its_binary() -> None:
    assert [each.name for each in contenders(None)] == [WARM, COLD, KOPF]


def test_the_peer_finds_its_programs_where_the_user_says_and_the_others_where_they_are() -> None:
    warm, *_, peer = contenders(PROGRAM, Path("/opt/runner"))
    assert (peer.name, peer.command[:2], peer.programs) == (PEER, (str(PROGRAM), "run"), Path("/opt/runner"))
    assert warm.programs != peer.programs
    assert contenders(PROGRAM)[-1].programs == warm.programs


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--contender", "peer"], "--peer PATH"),
        (["--peer-programs", "."], "expected a directory with ansible-runner, found '.'"),
        (["--peer", "no-such-program"], "expected an executable program, found 'no-such-program'"),
        (["--contender", "other"], "invalid choice: 'other'"),
    ],
)
def test_a_wrong_option_is_said_before_anything_starts(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        suite.main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err
