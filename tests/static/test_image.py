"""The Dockerfile against the repository that it copies from, and against what images of the Go runner promise."""

import json
import re
import tomllib

import pytest

from tests.static.repository import ROOT, documents

DOCKERFILE = (ROOT / "build/Dockerfile").read_text()
STAGES = ("operator", "runner")
SCRIPTS = ("Dockerfile", "install-packages", "prepare_base.py", "collections_in_use.py", "licenses.py")
PACKAGE_MANAGERS = r"\b(apt|apt-get|apk|dnf|dpkg|microdnf|rpm|yum|zypper|useradd|adduser)\b"
ARCHITECTURES = r"amd64|arm64|x86_64|aarch64"
# Of openshift-preflight: the check HasRequiredLabel, and the largest number of layers for LayerCountAcceptable.
REQUIRED_LABELS = {"name", "vendor", "version", "release", "summary", "description", "maintainer"}
MOST_LAYERS = 40
LABELS = re.compile(r"^LABEL (?:.+\\\n)*.+$", re.MULTILINE)


def instructions(name: str) -> list[str]:
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def environment() -> dict[str, str]:
    (line,) = instructions("ENV")
    return dict(word.split("=", 1) for word in line.split())


def test_build_requirements_of_the_image_have_hashes() -> None:
    """The locked packages have theirs in uv.lock, and nothing else may be installed."""
    text = "".join((ROOT / name).read_text().replace("\\\n", "") for name in ("build/tools.txt", "build/pip.txt"))
    tools = [line for line in text.splitlines() if not line.startswith("#")]
    assert {"uv", "hatchling", "pip"} <= {tool.partition("==")[0] for tool in tools}
    assert all("--hash=sha256:" in tool for tool in tools)
    script = (ROOT / "build/install-packages").read_text()
    installs = re.findall(r"^(?:install|.*pip --quiet \w+) .+$", script, re.MULTILINE)
    assert [line for line in installs if "--require-hashes" not in line] == [
        (
            'env PYTHONPATH=/tmp/tools ROLECALL_COMMIT="$REVISION" "$named" -m pip --quiet wheel --no-deps '
            "--no-build-isolation -w /tmp/wheel ."
        ),
        "install --python /opt/rolecall /tmp/wheel/*.whl",
    ]


def copied() -> list[str]:
    return [
        word
        for line in instructions("COPY")
        if "--from=" not in line
        for word in [part for part in line.split() if not part.startswith("--")][:-1]
    ]


def test_sources_of_the_package_are_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source in (*wheel["packages"], *wheel["force-include"]):
        assert any(source == place or source.startswith(f"{place}/") for place in copied()), source


def test_the_hook_of_the_build_is_copied_and_gets_the_commit() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["hooks"]["custom"]["path"] in copied()
    packages = DOCKERFILE.partition(" AS packages\n")[2].partition("FROM ")[0]
    assert packages.index("ARG REVISION=unknown\n") < packages.index("build/install-packages\n")


def test_copied_files_are_in_the_build_context() -> None:
    sources = copied()
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    assert [source for source in sources if not {source, source.split("/")[0]} & allowed] == []


def test_every_stage_starts_from_the_base_of_the_argument_or_from_another_stage() -> None:
    names = {line.split(" AS ")[1] for line in instructions("FROM")}
    assert {line.split(" AS ")[0] for line in instructions("FROM")} <= names | {"${BASE}"}
    assert [line for line in instructions("ARG") if line.startswith("BASE=")]


def test_the_last_stage_is_the_operator() -> None:
    assert instructions("FROM")[-1] == "common AS operator"


def test_dockerfile_for_the_go_runner_finds_user_directory_and_entry_point() -> None:
    (entry_point,) = instructions("ENTRYPOINT")
    operator = ["/tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]
    assert json.loads(entry_point) == operator
    assert instructions("USER")[-1] == "1001"
    assert "/opt/ansible" in instructions("WORKDIR")
    assert environment()["HOME"] == "/opt/ansible"


def test_temporary_directories_are_writable_in_a_read_only_container() -> None:
    directories = {value for name, value in environment().items() if name.endswith("_TEMP")}
    assert directories == {"/tmp/.ansible/tmp"}  # noqa: S108 - in the container


def labels(stage: str) -> dict[str, str]:
    """Return the labels of an image: those of the stage ``common`` and its own."""
    parts = {part.split("\n")[0]: part for part in re.split(r"^FROM \S+ AS ", DOCKERFILE, flags=re.MULTILINE)[1:]}
    return dict(re.findall(r'([\w.-]+)="([^"]+)"', "".join(re.findall(LABELS, parts["common"] + parts[stage]))))


@pytest.mark.parametrize("stage", STAGES)
def test_image_has_the_labels_required_for_certification(stage: str) -> None:
    found = labels(stage)
    assert found.keys() >= REQUIRED_LABELS
    assert found["version"] == found["org.opencontainers.image.version"] == "${VERSION}"
    trademark = re.compile(r"red[^a-z0-9]*hat")
    assert [value for value in found.values() if trademark.search(value.lower())] == []


def test_the_layers_above_the_base_leave_room_for_those_of_projects() -> None:
    assert len(instructions("COPY") + instructions("RUN") + instructions("ADD")) < MOST_LAYERS / 2


def test_nothing_in_the_build_calls_a_package_manager_or_names_an_architecture() -> None:
    for name in SCRIPTS:
        lines = (ROOT / "build" / name).read_text().splitlines()
        code = "\n".join(line for line in lines if not re.match(r"\s*(#|fail )", line))
        assert re.findall(PACKAGE_MANAGERS, code.partition('"""')[2].partition('"""')[2] or code) == []
        assert re.findall(ARCHITECTURES, code) == []


def test_every_locked_package_can_be_installed_on_both_architectures() -> None:
    """A wheel for any machine, or for both of them, or the sources, which build without a compiler."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    wheels = {each["name"]: [wheel["url"] for wheel in each.get("wheels", [])] for each in packages}
    linux = {name: [url for url in urls if re.search(r"-any|manylinux", url)] for name, urls in wheels.items()}
    for machine in ("x86_64", "aarch64"):
        missing = [
            name for name, urls in linux.items() if urls and not any(re.search(f"-any|{machine}", u) for u in urls)
        ]
        assert missing == []


def test_the_bundle_names_both_architectures() -> None:
    (base,) = documents("deploy/olm/base.yaml")
    named = {
        key.rpartition(".")[2] for key in base["metadata"]["labels"] if key.startswith("operatorframework.io/arch.")
    }
    assert named == {"amd64", "arm64"}
