"""The Dockerfile against the repository that it copies from, and against what images of the Go runner promise."""

import json
import re
import tomllib

from tests.static.repository import ROOT

DOCKERFILE = (ROOT / "build/Dockerfile").read_text()


def instructions(name: str) -> list[str]:
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def environment() -> dict[str, str]:
    (line,) = instructions("ENV")
    return dict(word.split("=", 1) for word in line.split())


def test_what_builds_the_image_has_hashes() -> None:
    """The locked packages have theirs in uv.lock, and nothing else may be installed."""
    text = (ROOT / "build/tools.txt").read_text().replace("\\\n", "")
    tools = [line for line in text.splitlines() if not line.startswith("#")]
    assert {"uv", "hatchling"} <= {tool.partition("==")[0] for tool in tools}
    assert all("--hash=sha256:" in tool for tool in tools)
    script = (ROOT / "build/install-packages").read_text()
    installs = re.findall(r"^(?:pip install|install|pip wheel) .+$", script, re.MULTILINE)
    assert [line for line in installs if "--require-hashes" not in line] == [
        "pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel .",
        "install --python /opt/rolecall /tmp/wheel/*.whl",
    ]


def copied() -> list[str]:
    return [
        word
        for line in instructions("COPY")
        if "--from=" not in line
        for word in [part for part in line.split() if not part.startswith("--")][:-1]
    ]


def test_what_the_package_is_made_of_is_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source in (*wheel["packages"], *wheel["force-include"]):
        assert any(source == place or source.startswith(f"{place}/") for place in copied()), source


def test_what_is_copied_is_in_the_build_context() -> None:
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


def test_a_dockerfile_for_the_go_runner_finds_user_folder_and_entry_point() -> None:
    (entry_point,) = instructions("ENTRYPOINT")
    operator = ["/tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]
    assert json.loads(entry_point) == operator
    assert instructions("USER") == ["1001"]
    assert "/opt/ansible" in instructions("WORKDIR")
    assert environment()["HOME"] == "/opt/ansible"


def test_temporary_folders_are_where_a_read_only_container_can_write() -> None:
    folders = {value for name, value in environment().items() if name.endswith("_TEMP")}
    assert folders == {"/tmp/.ansible/tmp"}  # noqa: S108 - in the container
