import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.controlplane import binaries
from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.versions import KUBERNETES, PROGRAM_NAMES

DEADLINE_SECONDS = 10
Fetch = Callable[[Path, binaries.Report], None]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty cache and a machine that offers no programs."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rolecall"


def _write_programs(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM_NAMES:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} {version}\n")
        program.chmod(0o755)


def _fetch_all(folder: Path, _report: binaries.Report) -> None:
    _write_programs(folder, "fetched")


def _fail(_folder: Path, _report: binaries.Report) -> None:
    raise BinariesUnavailableError("no way through")


def _never(_folder: Path, _report: binaries.Report) -> None:
    pytest.fail("this way must not be tried")


def test_what_the_machine_offers_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_programs(tmp_path / "assets", "v3.99.3")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    found = binaries.find_binaries(print, (("Download", _never),))
    assert set(found) == set(PROGRAM_NAMES)
    assert {path.parent for path in found.values()} == {tmp_path / "assets"}


def test_assets_come_before_path(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path", "v3.99.3")
    _write_programs(tmp_path / "assets", "v3.99.3")
    (tmp_path / "assets" / "kwok").unlink()
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    found = binaries.find_on_machine(environment, print)
    assert found is not None
    assert found["etcd"].parent == tmp_path / "assets"
    assert found["kwok"].parent == tmp_path / "path"


def test_a_missing_program_on_the_machine_leaves_it_out_silently(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path", "v3.99.3")
    (tmp_path / "path" / "kwok").unlink()
    said: list[str] = []
    assert binaries.find_on_machine({"PATH": str(tmp_path / "path")}, said.append) is None
    assert said == []


def test_programs_that_are_too_old_are_named_and_left_out(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path", "v3.5.0")
    said: list[str] = []
    assert binaries.find_on_machine({"PATH": str(tmp_path / "path")}, said.append) is None
    assert len(said) == 1
    assert str(tmp_path / "path" / "etcd") in said[0]
    assert "release 3.5" in said[0]
    assert "at least 3.6" in said[0]


def test_kubernetes_programs_of_different_releases_are_left_out(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path", "v3.99.3")
    (tmp_path / "path" / "kube-scheduler").write_text("#!/bin/sh\necho Kubernetes v3.98.0\n")
    said: list[str] = []
    assert binaries.find_on_machine({"PATH": str(tmp_path / "path")}, said.append) is None
    assert "different releases" in said[0]


def test_a_complete_cache_is_used_without_fetching(cache: Path) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    found = binaries.find_binaries(print, (("Download", _never),))
    assert found["etcd"] == cache / KUBERNETES / "etcd"


@pytest.mark.parametrize("damage", ["pins of other releases", "a missing program", "no pins"])
def test_a_cache_that_is_not_whole_is_fetched_again(cache: Path, damage: str) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    folder = cache / KUBERNETES
    match damage:
        case "pins of other releases":
            (folder / binaries.PINS_FILE).write_text("etcd v1\n")
        case "a missing program":
            (folder / "kwok").unlink()
        case _:
            (folder / binaries.PINS_FILE).unlink()
    assert binaries.find_in_cache(folder) is None
    assert binaries.find_binaries(print, (("Download", _fetch_all),))["kwok"].is_file()


def test_a_way_that_fails_says_so_in_one_line_and_the_next_is_taken() -> None:
    said: list[str] = []
    found = binaries.find_binaries(said.append, (("Download", _fail), ("Build", _fetch_all)))
    assert found["etcd"].is_file()
    assert said == ["Download is not possible: no way through"]


def test_no_way_left_names_every_reason() -> None:
    with pytest.raises(BinariesUnavailableError, match=r"Download: no way through\nBuild: no way through"):
        binaries.find_binaries(print, (("Download", _fail), ("Build", _fail)))


def test_half_of_a_fetch_never_ends_in_the_cache(cache: Path) -> None:
    def half(folder: Path, _report: binaries.Report) -> None:
        (folder / "etcd").write_text("half")
        raise BinariesUnavailableError("the line broke")

    with pytest.raises(BinariesUnavailableError):
        binaries.find_binaries(print, (("Download", half),))
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_what_a_killed_fetch_left_is_removed_by_the_next(cache: Path) -> None:
    left_over = cache / f"{binaries.PARTIAL_PREFIX}killed"
    left_over.mkdir(parents=True)
    (left_over / "etcd").write_text("half")
    binaries.find_binaries(print, (("Download", _fetch_all),))
    assert sorted(path.name for path in cache.iterdir()) == [".lock", KUBERNETES]


def test_two_at_the_same_time_fetch_once_and_the_second_says_that_it_waits() -> None:
    fetches: list[int] = []
    is_fetching, may_end, is_waiting = threading.Event(), threading.Event(), threading.Event()

    def slow(folder: Path, report: binaries.Report) -> None:
        fetches.append(os.getpid())
        is_fetching.set()
        assert may_end.wait(DEADLINE_SECONDS)
        _fetch_all(folder, report)

    def hear(message: str) -> None:
        assert "waiting" in message
        is_waiting.set()

    first = threading.Thread(target=binaries.find_binaries, args=(print, (("Build", slow),)))
    second = threading.Thread(target=binaries.find_binaries, args=(hear, (("Build", slow),)))
    first.start()
    assert is_fetching.wait(DEADLINE_SECONDS)
    second.start()
    assert is_waiting.wait(DEADLINE_SECONDS)
    may_end.set()
    first.join(DEADLINE_SECONDS)
    second.join(DEADLINE_SECONDS)
    assert len(fetches) == 1


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("Kubernetes v1.37.1", (1, 37)),
        ("etcd Version: 3.7.0\nGit SHA: 4d71f7c\nGo Version: go1.26.8", (3, 7)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)", (0, 8)),
        ("something else", None),
    ],
)
def test_the_release_is_read_from_what_programs_answer(
    tmp_path: Path, answer: str, version: tuple[int, int] | None
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat <<'EOT'\n{answer}\nEOT\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/bin:/bin")
        assert binaries.installed_version(program) == version
