import os
import stat
from pathlib import Path

import pytest

from rolecall.app.settings import Settings, default_workers, namespaces_of, private_directory


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (2, 2), (4, 4), (128, 4)])
def test_there_are_as_many_workers_as_cpus_up_to_four(cpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cpus)))
    assert default_workers() == workers == Settings().workers


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [(None, ()), ("", ()), (" ", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , ,b,", ("a", "b"))],
)
def test_the_environment_names_namespaces(text: str | None, namespaces: tuple[str, ...]) -> None:
    assert namespaces_of({} if text is None else {"WATCH_NAMESPACE": text}) == namespaces


def test_a_private_directory_is_new_and_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = private_directory(), private_directory()
    assert first != second
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


def test_an_operator_stops_before_kubernetes_loses_its_patience() -> None:
    assert Settings().grace_seconds < 30
