"""``make release`` in a clone of this repository, and what people do with its wheel: pipx, init, create api, demo."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.guides import PROJECT, guide
from tests.integration.shell import copy_repository

GUIDE = guide("docs/guides/install.md")
VERSION = "9.9.9"
IMAGE = "registry.example/rolecall:9.9.9"
NEW_PROJECT = """
rolecall init --domain example.com web
cd web
rolecall create api --group shop --version v1 --kind Website --generate-role
"""
ENDED_WELL = "Every sample has reached its end state"


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in a separate environment: an empty home, and the system's programs and ``programs`` on PATH."""

    home: Path
    programs: tuple[Path, ...]

    def run(self, script: str, **more: str) -> str:
        """Run a script in the home directory and return all it printed; fail if one of its commands fails."""
        self.home.mkdir(exist_ok=True)
        done = subprocess.run(
            ("bash", "-euc", script),
            cwd=self.home,
            env=self._environment(more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return variables without those of the tests' environment; the control plane's programs are in the cache."""
        own = str(Path(sys.executable).parent)
        path = [word for word in os.environ["PATH"].split(os.pathsep) if word != own]
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        given = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "VIRTUAL_"))}
        changed = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([*map(str, self.programs), *path]),
            "XDG_CACHE_HOME": cache,
            "ROLECALL_STATE_DIR": str(self.home / "state"),
        }
        return {**given, **changed, **more}


@dataclass(frozen=True, slots=True)
class Release:
    """A clone and the release that was made in it."""

    clone: Path
    printed: str

    @property
    def files(self) -> Path:
        """The directory with the files of the release."""
        return self.clone / "dist" / VERSION

    def one(self, pattern: str) -> Path:
        """Return the only file with a name like this."""
        (found,) = self.files.glob(pattern)
        return found


@pytest.fixture(scope="module")
def uv() -> str:
    """Return the program that the Makefile uses."""
    found = shutil.which("uv") or str(PROJECT / ".venv-uv" / "bin" / "uv")
    assert Path(found).exists(), "run this by 'make test-release'"
    return found


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Release:
    """Make a release of the files as they are, committed in a clone."""
    clone = tmp_path_factory.mktemp("release") / "rolecall"
    copy_repository(clone)
    script = f"""
        git init --quiet && git config user.name Somebody && git config user.email somebody@example.com
        git add --all && git commit --quiet --message Everything
        make release VERSION={VERSION} RELEASED_IMG={IMAGE} RELEASE=--no-image UV={uv}
    """
    done = subprocess.run(("bash", "-euc", script), cwd=clone, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return Release(clone, done.stdout)


def test_a_release_has_every_file_and_its_checksum(release: Release) -> None:
    expected = {
        f"rolecall-{VERSION}-py3-none-any.whl",
        f"rolecall-{VERSION}-olm-bundle.tar.gz",
        f"rolecall-{VERSION}-changes.md",
        f"rolecall-{VERSION}-licenses.txt",
        f"rolecall-{VERSION}.cdx.json",
    }
    assert {path.name for path in release.files.iterdir()} == {*expected, "SHA256SUMS"}
    checked = subprocess.run(
        ("sha256sum", "--check", "SHA256SUMS"), cwd=release.files, capture_output=True, text=True, check=True
    )
    assert {line.split(":")[0] for line in checked.stdout.splitlines()} == expected


def test_the_files_are_those_of_the_version(release: Release) -> None:
    head = ("git", "rev-parse", f"release-{VERSION}")
    commit = subprocess.run(head, cwd=release.clone, capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(release.one("*.whl")) as wheel:
        assert wheel.read("rolecall/commit.txt").decode() == commit
        assert f"\nVersion: {VERSION}\n" in wheel.read(f"rolecall-{VERSION}.dist-info/METADATA").decode()
    with tarfile.open(release.one("*-olm-bundle.tar.gz")) as archive:
        member = next(name for name in archive.getnames() if name.endswith(".clusterserviceversion.yaml"))
        file = archive.extractfile(member)
        assert file is not None
        described = yaml.safe_load(file.read())
    assert described["spec"]["version"] == VERSION
    assert IMAGE in json.dumps(described["spec"]["install"])
    assert release.one("*-changes.md").read_text().startswith(f"## {VERSION} (")


def normalized(name: str) -> str:
    """Return the name of a package as indexes compare it: ruamel.yaml is also ruamel-yaml."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bill_of_materials_has_every_package_with_a_hash_and_each_has_a_license(release: Release) -> None:
    components = json.loads(release.one("*.cdx.json").read_text())["components"]
    listed = {normalized(line.split()[0]) for line in release.one("*-licenses.txt").read_text().splitlines()}
    names = {each["name"] for each in components}
    assert {"ansible", "ansible-core", "kubernetes", "aiohttp"} <= names
    assert [each["name"] for each in components if "SHA-256" not in json.dumps(each)] == []
    assert "kubernetes-core" in listed
    without = {name for name in names if normalized(name) not in listed}
    assert without <= {each["name"] for each in components if "marker" in json.dumps(each)}, "only for other systems"


def test_nothing_is_published_and_the_working_tree_stays_as_it_is(release: Release) -> None:
    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=release.clone, capture_output=True, text=True, check=True).stdout

    assert git("status", "--porcelain") == ""
    assert git("tag") == ""
    assert f"release-{VERSION}" in git("branch")
    assert git("ls-tree", "--name-only", f"release-{VERSION}", "changelog.d/").split() == ["changelog.d/README.md"]
    assert "Nothing is published" in release.printed


def test_the_same_commit_gives_the_same_wheel(release: Release, uv: str, tmp_path: Path) -> None:
    script = f"""
        git clone --quiet --branch release-{VERSION} {release.clone} again && cd again
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) {uv} build --quiet --wheel --out-dir ../built
    """
    subprocess.run(("bash", "-euc", script), cwd=tmp_path, check=True)
    (built,) = (tmp_path / "built").glob("*.whl")
    assert built.read_bytes() == release.one("*.whl").read_bytes()


@dataclass(frozen=True, slots=True)
class Installed:
    """The executed guide, and the directory where pipx installs."""

    shell: Shell
    printed: str
    environments: Path


@pytest.fixture(scope="module")
def installed(release: Release, uv: str, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Run the commands of the guide in the clone, with pipx but without rolecall on PATH."""
    directory = tmp_path_factory.mktemp("pipx")
    pipx = directory / "pipx"
    subprocess.run((sys.executable, "-m", "venv", str(pipx)), check=True)
    subprocess.run((str(pipx / "bin" / "pip"), "install", "--quiet", "pipx"), check=True)
    (directory / "bin").mkdir()
    (directory / "bin" / "pipx").symlink_to(pipx / "bin" / "pipx")
    shell = Shell(directory / "home", (directory / "bin",))
    places = {"PIPX_HOME": str(directory / "environments"), "PIPX_BIN_DIR": str(directory / "bin"), "UV": uv}
    script = "\n".join([f"cd {release.clone}", *(step.command for step in GUIDE.steps)])
    return Installed(shell, shell.run(script, **places), directory / "environments")


def test_pipx_installs_it_and_a_new_project_works_at_once(installed: Installed) -> None:
    assert ENDED_WELL in installed.printed
    assert "rolecall 0." in installed.shell.run("rolecall version")


def test_without_the_extra_it_works_with_collections_of_ones_own(
    installed: Installed, release: Release, uv: str, tmp_path: Path
) -> None:
    """Without Ansible Galaxy: the installed collection replaces the one that would come from there."""
    lean = tmp_path / "lean"
    wheel = release.one("*.whl")
    subprocess.run((uv, "venv", "--quiet", "--python", sys.executable, str(lean)), check=True)
    subprocess.run((uv, "pip", "install", "--quiet", "--python", str(lean / "bin" / "python"), str(wheel)), check=True)
    own = Shell(tmp_path / "home", (lean / "bin",))
    printed = own.run(f"{NEW_PROJECT}\nrolecall validate || true")
    assert "The collection kubernetes.core is not installed: run 'ansible-galaxy collection install" in printed
    (source,) = installed.environments.glob("**/ansible_collections/kubernetes/core")
    assert ENDED_WELL in own.run(f"ansible-galaxy collection install {source}\ncd web && make demo")
