import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rolecall.workbench.controlplane import binaries
from rolecall.workbench.controlplane import binaries as build
from rolecall.workbench.controlplane.download import (
    KUBERNETES,
    PROGRAM_NAMES,
    PROGRAMS,
    RELEASES,
    SERVER_NAMES,
    Program,
    programs_of,
)
from rolecall.workbench.controlplane.errors import BinariesUnavailableError

DEADLINE_SECONDS = 90
Fetch = Callable[[Sequence[Program], Path, binaries.Report], None]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache and a machine that offers no programs."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rolecall"


def _write_program(directory: Path, name: str, version: str = "v3.99.3") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho {name} {version}\n")
    program.chmod(0o755)
    return program


def _write_programs(directory: Path, version: str = "v3.99.3") -> None:
    for name in PROGRAM_NAMES:
        _write_program(directory, name, version)


def _fetch_all(programs: Sequence[Program], directory: Path, _report: binaries.Report) -> None:
    for program in programs:
        _write_program(directory, program.name)


def _fails(_programs: Sequence[Program], _directory: Path, _report: binaries.Report) -> None:
    raise BinariesUnavailableError("no way through")


def _never(_programs: Sequence[Program], _directory: Path, _report: binaries.Report) -> None:
    pytest.fail("this way must not be tried")


def test_programs_of_the_machine_come_first(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_programs(tmp_path / "assets")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    found = binaries.find_binaries(print, (("Download", _never),))
    assert set(found) == set(PROGRAM_NAMES)
    assert {path.parent for path in found.values()} == {tmp_path / "assets"}
    assert not cache.exists()


def test_assets_come_before_path(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path")
    _write_programs(tmp_path / "assets")
    (tmp_path / "assets" / "kwok").unlink()
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    found = binaries.find_on_machine(environment).programs
    assert found["etcd"].parent == tmp_path / "assets"
    assert found["kwok"].parent == tmp_path / "path"


@pytest.mark.parametrize("name", ["etcd", "kwok", "kubectl"])
def test_a_program_on_path_that_is_new_enough_is_used_and_not_fetched(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mine = _write_program(tmp_path / "path", name)
    monkeypatch.setenv("PATH", str(mine.parent))
    said: list[str] = []
    found = binaries.find_binaries(said.append, (("Download", _fetch_all),))
    assert found[name] == mine
    assert {path.parent for other, path in found.items() if other != name} == {cache / KUBERNETES}
    assert not (cache / KUBERNETES / name).exists()
    assert said == []


def test_a_program_on_path_that_is_too_old_is_named_and_fetched(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _write_program(tmp_path / "path", "kubectl", "v1.20.2")
    monkeypatch.setenv("PATH", str(old.parent))
    said: list[str] = []
    found = binaries.find_binaries(said.append, (("Download", _fetch_all),))
    assert found["kubectl"] == cache / KUBERNETES / "kubectl"
    assert said == [f"{old} is release 1.20, expected at least 1.36; using our own kubectl"]


def test_a_program_that_is_too_old_is_not_named_again_once_ours_is_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    monkeypatch.setenv("PATH", str(_write_program(tmp_path / "path", "kubectl", "v1.20.2").parent))
    said: list[str] = []
    binaries.find_binaries(said.append, (("Download", _never),))
    assert said == []


def test_etcd_without_sockets_as_peer_urls_is_rejected(tmp_path: Path) -> None:
    """A sandbox and a control plane start etcd with the URL of a socket, which etcd 3.6 rejects."""
    etcd = tmp_path / "path" / "etcd"
    _write_program(etcd.parent, "etcd")
    etcd.write_text("#!/bin/sh\nprintf 'etcd Version: 3.6.5\\nGit SHA: a0afd9b\\nGo Version: go1.25.1\\n'\n")
    offer = binaries.find_on_machine({"PATH": str(etcd.parent)})
    assert offer.programs == {}
    assert offer.rejected == {"etcd": f"{etcd} is release 3.6, expected at least 3.7; using our own etcd"}
    etcd.write_text(etcd.read_text().replace("3.6.5", "3.7.0"))
    assert binaries.find_on_machine({"PATH": str(etcd.parent)}) == binaries.Offer({"etcd": etcd})


def test_newer_program_in_a_later_directory_is_used(tmp_path: Path) -> None:
    _write_program(tmp_path / "old", "etcd", "v3.6.0")
    _write_program(tmp_path / "silent", "etcd").write_text("#!/bin/sh\nexit 1\n")
    newer = _write_program(tmp_path / "newer", "etcd", "v3.7.1")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "old"), "PATH": f"{tmp_path / 'silent'}::{newer.parent}"}
    assert binaries.find_on_machine(environment) == binaries.Offer({"etcd": newer})
    environment["PATH"] = str(tmp_path / "silent")
    text = binaries.find_on_machine(environment).rejected["etcd"]
    assert "old/etcd is release 3.6, " in text
    assert "silent/etcd is an unknown release, " in text


def test_only_the_programs_that_are_too_old_are_left_out(tmp_path: Path) -> None:
    _write_programs(tmp_path / "path", "v3.5.0")
    offer = binaries.find_on_machine({"PATH": str(tmp_path / "path")})
    assert set(offer.programs) == set(PROGRAM_NAMES) - {"etcd"}
    assert set(offer.rejected) == {"etcd"}


@pytest.mark.parametrize("name", sorted(SERVER_NAMES))
def test_servers_of_kubernetes_are_only_taken_together(tmp_path: Path, name: str) -> None:
    _write_programs(tmp_path / "path")
    (tmp_path / "path" / name).unlink()
    offer = binaries.find_on_machine({"PATH": str(tmp_path / "path")})
    assert set(offer.programs) == set(PROGRAM_NAMES) - SERVER_NAMES
    assert offer.rejected == {}


def test_servers_of_different_releases_are_left_out_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_programs(tmp_path / "path")
    _write_program(tmp_path / "path", "kube-scheduler", "v3.98.0")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    said: list[str] = []
    found = binaries.find_binaries(said.append, (("Download", _fetch_all),))
    assert {name for name, path in found.items() if path.parent == tmp_path / "path"} == {"etcd", "kwok", "kubectl"}
    assert len(said) == 1
    assert "different releases" in said[0]


def test_a_complete_cache_is_used_without_fetching(cache: Path) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    found = binaries.find_binaries(print, (("Download", _never),))
    assert found["etcd"] == cache / KUBERNETES / "etcd"


@pytest.mark.parametrize("damage", ["pins of other releases", "a missing program", "no pins"])
def test_a_cache_that_is_not_whole_is_fetched_again(cache: Path, damage: str) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    directory = cache / KUBERNETES
    match damage:
        case "pins of other releases":
            (directory / binaries.PINS_FILE).write_text("etcd v1\n")
        case "a missing program":
            (directory / "kwok").unlink()
        case _:
            (directory / binaries.PINS_FILE).unlink()
    assert binaries.find_in_cache({directory: PROGRAMS}).keys() < set(PROGRAM_NAMES)
    assert binaries.find_binaries(print, (("Download", _fetch_all),))["kwok"].is_file()


def test_only_missing_programs_are_fetched(cache: Path) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    (cache / KUBERNETES / "kwok").unlink()
    wanted: list[str] = []

    def fetch(programs: Sequence[Program], directory: Path, report: binaries.Report) -> None:
        wanted.extend(program.name for program in programs)
        _fetch_all(programs, directory, report)

    assert binaries.find_binaries(print, (("Download", fetch),))["kwok"].is_file()
    assert wanted == ["kwok"]


def test_nothing_of_other_releases_stays_in_the_cache(cache: Path) -> None:
    binaries.find_binaries(print, (("Download", _fetch_all),))
    (cache / KUBERNETES / binaries.PINS_FILE).write_text("etcd v1\n")
    with pytest.raises(BinariesUnavailableError):
        binaries.find_binaries(print, (("Download", _fetches("etcd")),))
    assert sorted(path.name for path in (cache / KUBERNETES).iterdir()) == ["etcd", binaries.PINS_FILE]


def test_a_way_that_fails_says_so_in_one_line_and_the_next_is_taken() -> None:
    said: list[str] = []
    found = binaries.find_binaries(said.append, (("Download", _fails), ("Build", _fetch_all)))
    assert found["etcd"].is_file()
    assert said == ["Download failed: no way through"]


def _fetches(*names: str) -> Fetch:
    def fetch(programs: Sequence[Program], directory: Path, report: binaries.Report) -> None:
        _fetch_all([program for program in programs if program.name in names], directory, report)
        raise BinariesUnavailableError("the rest could not be had")

    return fetch


def test_program_that_one_source_lacks_comes_from_the_next() -> None:
    built: list[str] = []

    def build(programs: Sequence[Program], directory: Path, report: binaries.Report) -> None:
        built.extend(program.name for program in programs)
        _fetch_all(programs, directory, report)

    downloads = [name for name in PROGRAM_NAMES if name != "kwok"]
    found = binaries.find_binaries(print, (("Download", _fetches(*downloads)), ("Build", build)))
    assert built == ["kwok"]
    assert set(found) == set(PROGRAM_NAMES)


def test_no_way_left_names_what_is_missing_and_every_reason() -> None:
    with pytest.raises(BinariesUnavailableError) as failure:
        binaries.find_binaries(print, (("Download", _fetches("etcd")), ("Build", _fails)))
    assert str(failure.value).splitlines() == [
        "these programs are missing and cannot be had: " + ", ".join(PROGRAM_NAMES[1:]),
        "Download: the rest could not be had",
        "Build: no way through",
    ]


def test_half_of_a_program_never_ends_in_the_cache(cache: Path) -> None:
    def half(_programs: Sequence[Program], directory: Path, _report: binaries.Report) -> None:
        (directory / "etcd.download").write_text("half")
        raise BinariesUnavailableError("the line broke")

    with pytest.raises(BinariesUnavailableError):
        binaries.find_binaries(print, (("Download", half),))
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_rest_of_a_killed_fetch_is_removed_by_the_next(cache: Path) -> None:
    left_over = cache / f"{binaries.PARTIAL_PREFIX}killed"
    left_over.mkdir(parents=True)
    (left_over / "etcd").write_text("half")
    binaries.find_binaries(print, (("Download", _fetch_all),))
    assert sorted(path.name for path in cache.iterdir()) == [".lock", KUBERNETES]


def test_two_at_the_same_time_fetch_once_and_the_second_says_that_it_waits() -> None:
    fetches: list[int] = []
    is_fetching, may_end, is_waiting = threading.Event(), threading.Event(), threading.Event()

    def slow(programs: Sequence[Program], directory: Path, report: binaries.Report) -> None:
        fetches.append(os.getpid())
        is_fetching.set()
        assert may_end.wait(DEADLINE_SECONDS)
        _fetch_all(programs, directory, report)

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


GO_STUB = """#!/bin/sh
case "$1" in
env) echo {version} ;;
list)
  echo "go: downloading some/module v1" >&2
  for argument in "$@"; do echo "$argument"; done
  {listing} ;;
build)
  echo "some/package" >&2
  output=; packages=
  while [ $# -gt 0 ]; do case "$1" in
    -o) output=$2; shift 2 ;;
    -*) shift ;;
    */*) packages="$packages $1"; shift ;;
    *) shift ;;
  esac; done
  for package in $packages; do
    if [ -d "$output" ]; then echo built > "$output/${{package##*/}}"; else echo built > "$output"; fi
  done
  {ending} ;;
esac
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake Go first on PATH, which only writes the files."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return _install(directory / "go", "go1.26.3", "exit 0")


def _install(path: Path, version: str, ending: str, listing: str = "exit 0") -> Path:
    path.write_text(GO_STUB.format(version=version, ending=ending, listing=listing))
    path.chmod(0o755)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return the directory to build into."""
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


@pytest.mark.usefixtures("go")
def test_every_program_is_built_and_progress_says_what_remains(target: Path) -> None:
    said: list[str] = []
    build.build_programs(PROGRAMS, target, said.append)
    assert sorted(path.name for path in target.iterdir()) == sorted(PROGRAM_NAMES)
    assert "minutes" in said[0]
    assert [line for line in said if line.startswith("Step")] == [
        "Step 1 of 2: etcd",
        "Step 2 of 2: kube-apiserver, kube-controller-manager, kube-scheduler, kwok, kubectl",
    ]
    assert any(re.search(r"2 of \d+ packages compiled", line) for line in said)
    assert said[-1].startswith("Built in")


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("names", [["etcd"], ["kwok"], ["kubectl", "kwok"]])
def test_only_the_programs_that_are_missing_are_built(target: Path, names: list[str]) -> None:
    build.build_programs([program for program in PROGRAMS if program.name in names], target, print)
    assert sorted(path.name for path in target.iterdir()) == names


def test_modules_that_cannot_be_downloaded_end_the_build_but_not_what_is_built(go: Path, target: Path) -> None:
    _install(go, "go1.26.3", "exit 0", "echo no such host >&2; exit 1")
    with pytest.raises(BinariesUnavailableError, match=r"go list ended with exit code 1: .*no such host"):
        build.build_programs(PROGRAMS, target, print)
    assert [path.name for path in target.iterdir()] == ["etcd"]


@pytest.mark.parametrize(("gigabytes", "expected"), [(2, {}), (3, {}), (4, {"GOGC": "800"}), (8, {"GOGC": "800"})])
def test_garbage_is_collected_rarely_only_where_there_is_memory(gigabytes: int, expected: dict[str, str]) -> None:
    assert build.garbage_collection(gigabytes * 2**30, processors=2) == expected


def test_a_build_that_fails_shows_what_the_compiler_said(go: Path, target: Path) -> None:
    _install(go, "go1.26.3", "echo cannot find module >&2; exit 3")
    with pytest.raises(BinariesUnavailableError, match=r"ended with exit code 3: .*cannot find module"):
        build.build_programs(PROGRAMS, target, print)


def test_a_go_that_is_too_old_is_refused_with_its_version(go: Path, target: Path) -> None:
    _install(go, "go1.25.9", "exit 0")
    with pytest.raises(BinariesUnavailableError, match=r"'go1\.25\.9'; expected Go 1\.26"):
        build.build_programs(PROGRAMS, target, print)


def test_no_go_says_what_is_missing(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BinariesUnavailableError, match="no 'go' found on PATH"):
        build.build_programs(PROGRAMS, target, print)


def test_a_version_that_kubectl_can_read_is_linked_into_the_programs() -> None:
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}" in build.linker_flags()


def test_another_release_of_kubernetes_has_its_own_servers_and_shares_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(programs: Sequence[Program], directory: Path, report: binaries.Report) -> None:
        fetched.extend(f"{program.name} {program.release}" for program in programs)
        _fetch_all(programs, directory, report)

    binaries.find_binaries(print, (("Download", fetch),))
    fetched.clear()
    older = binaries.find_binaries(print, (("Download", fetch),), kubernetes="1.34")
    own = {*SERVER_NAMES, "kubectl"}
    assert sorted(fetched) == sorted(f"{name} {RELEASES['1.34']}" for name in own)
    assert {name: path.parent.name for name, path in older.items()} == {
        name: RELEASES["1.34"] if name in own else KUBERNETES for name in PROGRAM_NAMES
    }
    monkeypatch.setenv(binaries.VERSION_VARIABLE, RELEASES["1.34"])
    assert binaries.find_binaries(print, (("Download", _never),)) == older
    newest = binaries.find_binaries(print, (("Download", _never),), kubernetes="1.37")
    assert {path.parent for path in newest.values()} == {cache / KUBERNETES}


def test_programs_of_the_machine_need_the_version_that_was_requested(tmp_path: Path) -> None:
    programs = programs_of(RELEASES["1.34"])
    _write_programs(tmp_path / "path", "v1.35.1")
    environment = {"PATH": str(tmp_path / "path")}
    offer = binaries.find_on_machine(environment, programs)
    assert offer.programs.keys() == {"kwok"}
    scheduler = tmp_path / "path" / "kube-scheduler"
    assert (
        offer.rejected["kube-scheduler"] == f"{scheduler} is release 1.35, expected 1.34; using our own kube-scheduler"
    )
    _write_programs(tmp_path / "path", "v1.34.0")
    assert binaries.find_on_machine(environment, programs).programs.keys() == {*SERVER_NAMES, "kubectl", "kwok"}


@pytest.mark.parametrize("version", ["1.20", "1.38", "latest", "v1", "1.34.99"])
def test_a_version_that_cannot_be_had_is_an_error_with_those_that_can(version: str) -> None:
    with pytest.raises(BinariesUnavailableError, match=f"Kubernetes '{version}' isn't available.* 1.31, .*1.37"):
        binaries.find_binaries(print, (("Download", _never),), kubernetes=version)


@pytest.mark.parametrize("release", RELEASES.values())
def test_each_release_reports_its_own_version(release: str) -> None:
    assert f"-X k8s.io/component-base/version.gitVersion={release}" in build.linker_flags(release)
