"""Patches that an unknown function disables, and those that stay in use."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ansible
import pytest

from rolecall.runner.runs.runner_process import COLLECTIONS
from rolecall.runner.warm.ansible_patches.fingerprints import ABSENT, Fingerprints, digests_of, file_digest
from rolecall.runner.warm.ansible_patches.forked_modules import _is_known
from rolecall.runner.warm.ansible_patches.patches import (
    PATCHES,
    VARIABLE,
    Patch,
    PatchStatus,
    installed_patches,
    patch_statuses,
)

CORE, COLLECTION = "ansible-core 1.0", "kubernetes.core 1.0"
ONE, TWO = "def one(): return 1\n", "def two(): return 2\n"
CHAIN = (Patch("first", "", ("ansible.a:one",)), Patch("second", "", ("ansible.b:two",), needs=("first",)))

Install = Callable[[dict[str, str]], str]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Write modules, and return the directory that has them."""

    def write(modules: dict[str, str]) -> str:
        for name, text in modules.items():
            path = tmp_path / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return write


def known(modules: dict[str, str], names: dict[str, str], release: str = CORE) -> Fingerprints:
    """Return the fingerprints of one release: names by module."""
    found = Fingerprints()
    for module, name in names.items():
        source = modules[module].encode() if module in modules else None
        digest = digests_of(source, [name])[name]
        found.functions[f"{module}:{name}"] = {digest: [release]}
        if source is not None:
            found.files[module] = {file_digest(source): [release]}
    return found


def states(statuses: list[PatchStatus]) -> dict[str, str]:
    return {status.name: status.state for status in statuses}


def test_every_declared_function_is_in_a_tested_release() -> None:
    data = Fingerprints.load().functions
    assert data.keys() == {function for patch in PATCHES for function in (*patch.functions, *patch.optional)}
    required = [function for patch in PATCHES for function in patch.functions]
    assert [function for function in required if not data[function].keys() - {ABSENT}] == []


def test_a_patch_comes_after_those_that_it_needs() -> None:
    names = [patch.name for patch in PATCHES]
    assert all(names.index(need) < names.index(patch.name) for patch in PATCHES for need in patch.needs)
    assert len(set(names)) == len(names)


def test_all_patches_are_in_use_with_the_locked_releases() -> None:
    assert [status for status in installed_patches() if status.state == "disabled"] == []


def test_changed_comment_keeps_a_patch_in_use(install: Install) -> None:
    data = known({"ansible.a": ONE, "ansible.b": TWO}, {"ansible.a": "one", "ansible.b": "two"})
    path = install({"ansible.a": f"# changed\n{ONE}", "ansible.b": TWO})
    assert states(patch_statuses(data, [path], CHAIN)) == {"first": "in use", "second": "in use"}


def test_changed_function_disables_its_patch_alone(install: Install) -> None:
    data = known({"ansible.a": ONE, "ansible.b": TWO}, {"ansible.a": "one", "ansible.b": "two"})
    path = install({"ansible.a": ONE, "ansible.b": TWO.replace("2", "3")})
    found = patch_statuses(data, [path], CHAIN)
    assert states(found) == {"first": "in use", "second": "disabled"}
    assert found[1].reason == "ansible.b:two of ansible-core ? is unknown"


def test_changed_function_disables_the_patches_that_need_its_patch(install: Install) -> None:
    data = known({"ansible.a": ONE, "ansible.b": TWO}, {"ansible.a": "one", "ansible.b": "two"})
    first, second = patch_statuses(data, [install({"ansible.a": "one = 1", "ansible.b": TWO})], CHAIN)
    assert (first.state, first.lacks) == ("disabled", "")
    assert (second.state, second.lacks, second.reason) == ("disabled", "first", "it needs first")


def test_missing_function_disables_its_patch_even_if_a_tested_release_lacks_it(install: Install) -> None:
    data = known({}, {"ansible.a": "one"})
    (status,) = patch_statuses(data, [install({})], CHAIN[:1])
    assert status.reason == "ansible.a:one of ansible-core ? is missing"


@pytest.mark.parametrize(("source", "state"), [(ONE, "in use"), (ONE.replace("1", "2"), "disabled")])
def test_missing_optional_function_is_known_only_with_the_others_of_its_release(
    install: Install, source: str, state: str
) -> None:
    data = known({"ansible.a": ONE}, {"ansible.a": "one", "ansible.b": "two"})
    data.functions["ansible.a:one"][digests_of(source.encode(), ["one"])["one"]] = (
        [CORE] if source == ONE else ["ansible-core 2.0"]
    )
    patch = Patch("first", "", ("ansible.a:one",), optional=("ansible.b:two",))
    assert states(patch_statuses(data, [install({"ansible.a": source})], [patch])) == {"first": state}


@pytest.mark.parametrize(
    ("version", "state"), [("5.2.9", "in use"), ("5.3.0", "not needed"), ("10.0.0", "not needed"), ("", "not needed")]
)
def test_patch_for_old_collections_is_not_needed_with_others(install: Install, version: str, state: str) -> None:
    module = "ansible_collections.kubernetes.core.plugins.a"
    path = install({module: ONE} if version else {})
    if version:
        manifest = Path(path, "ansible_collections/kubernetes/core/MANIFEST.json")
        manifest.write_text(f'{{"collection_info": {{"version": "{version}"}}}}')
    patch = Patch("first", "", (f"{module}:one",), before=(5, 3, 0))
    data = known({module: ONE}, {module: "one"}, COLLECTION)
    assert states(patch_statuses(data, [path], [patch])) == {"first": state}


def test_patch_that_cannot_be_imported_disables_those_that_need_it() -> None:
    found = installed_patches({"forked-modules": "it can't be imported: no"})
    disabled = {status.name: status.lacks for status in found if status.state == "disabled"}
    lacking = ("module-host", "in-process-tasks", "known-discovery")
    assert disabled == {"forked-modules": "", **dict.fromkeys(lacking, "forked-modules")}
    assert "it can't be imported: no" in [status.reason for status in found]


def test_variable_turns_experimental_patches_on_and_others_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(installed_patches())["module-host"] == "not needed"
    monkeypatch.setenv(VARIABLE, "module-host, -event-channel")
    found = {status.name: status for status in installed_patches()}
    assert found["module-host"].state == "in use"
    assert (found["event-channel"].state, found["event-channel"].reason) == (
        "disabled",
        "ROLECALL_PATCHES turns it off",
    )


def test_name_in_the_variable_that_no_patch_has_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "modul-host,, -event-chanel")
    found = {status.name: status.reason for status in installed_patches() if status.state == "disabled"}
    reason = "there is no such patch, but ROLECALL_PATCHES names it"
    assert found == {"modul-host": reason, "event-chanel": reason}


def test_only_modules_of_tested_releases_and_ours_share_a_process(tmp_path: Path) -> None:
    """One that differs in a byte, or has another place, may do anything."""
    prefix = "ansible_collections.kubernetes.core.plugins.modules"
    (path,) = importlib.import_module(prefix).__path__
    collections = str(Path(path).parents[4])
    for name in ("k8s", "k8s_info", "k8s_scale", "k8s_log"):
        source = Path(path, f"{name}.py").read_bytes()
        assert _is_known(f"{prefix}.{name}", collections, source)
        assert not _is_known(f"{prefix}.{name}", collections, source + b"#")
    for name in ("k8s_exec", "k8s_cp", "k8s_drain", "helm"):
        assert not _is_known(f"{prefix}.{name}", collections, Path(path, f"{name}.py").read_bytes())
    for name in ("rolecall.util.plugins.modules.prune", "operator_sdk.util.plugins.modules.k8s_status"):
        assert _is_known(f"ansible_collections.{name}", str(COLLECTIONS), b"")
        assert not _is_known(f"ansible_collections.{name}", str(tmp_path), b"")


def test_changed_function_of_real_ansible_disables_only_its_patch(tmp_path: Path) -> None:
    """The names of the patches that a real change disables are those in the log and the metric."""
    own = Path(ansible.__file__).parent
    copy = tmp_path / "ansible"
    (copy / "executor").mkdir(parents=True)
    text = (own / "executor" / "task_executor.py").read_text()
    assert "def _run_loop(self, items" in text
    changed = text.replace("def _run_loop(self, items", "def _run_loop(self, /, items")
    (copy / "executor" / "task_executor.py").write_text(changed)
    found = patch_statuses(Fingerprints.load(), [str(tmp_path), *sys.path])
    assert {status.name for status in found if status.state == "disabled"} == {"in-process-tasks"}


def test_every_replaced_function_is_declared() -> None:
    """Compares the classes and modules of Ansible before and after all patches, in a separate process."""
    script = Path(__file__).with_name("replaced_functions.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    replaced = set(done.stdout.split())
    declared = {function for patch in PATCHES for function in (*patch.functions, *patch.optional)}
    assert replaced
    assert replaced - declared == set()
