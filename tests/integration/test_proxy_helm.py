"""helm as a run's tool: it installs, upgrades and uninstalls a chart through the proxy, and the run's primary owns it.

helm isn't part of this project. Without it, the test is skipped and says why. It sends requests as kubectl does, by the
same library, and the other tests of the proxy never skip kubectl.
"""

import json
import shutil
from pathlib import Path

import pytest

from rolecall.kube.references import GVK
from tests.integration.proxied import Run
from tests.support.world import CONFIG_MAP

SECRET = GVK("", "v1", "Secret")


@pytest.fixture
def helm() -> str:
    """Return the program."""
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not on PATH: charts through the proxy are not tried here")
    return found


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a chart with one ConfigMap."""
    directory = tmp_path / "chart"
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "chart", "version": "0.1.0"}))
    (directory / "values.yaml").write_text(json.dumps({"colour": "red"}))
    (directory / "templates/map.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: charted}, data: {colour: {{ .Values.colour | quote }}}}"
    )
    return directory


async def test_a_chart_is_installed_upgraded_and_uninstalled(run: Run, helm: str, chart: Path) -> None:
    place = ("--namespace", run.world.namespace)
    for colour, command in (("red", "install"), ("blue", "upgrade"), ("blue", "status")):
        words = [helm, command, "release", *([str(chart)] if command != "status" else []), *place]
        if command == "upgrade":
            words += ["--set", f"colour={colour}"]
        code, output = await run.command(*words)
        assert code == 0, output
        assert (await run.world.get(CONFIG_MAP, "charted"))["data"] == {"colour": colour}
        assert await run.owners("charted") == [run.itself.owner.uid]
    releases = await run.world.objects(SECRET)
    assert len(releases) == 2
    for release in releases:
        assert [owner["uid"] for owner in release["metadata"]["ownerReferences"]] == [run.itself.owner.uid]
    code, output = await run.command(helm, "uninstall", "release", *place)
    assert code == 0, output
    assert await run.world.find(CONFIG_MAP, "charted") is None
