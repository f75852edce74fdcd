"""Alerts, as Prometheus's own promtool evaluates them for metrics that an operator has exposed.

promtool isn't part of this project; ``.ci/run`` installs it and sets ``REQUIRE_PROMETHEUS``, so that CI never skips its
tests.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml


def program(found: str | None, name: str) -> Path:
    """Return the path of a part of Prometheus, or skip the test, but not in CI."""
    if found is None or not Path(found).exists():
        missing = f"{name} is missing: .ci/run shows how to install it"
        if os.environ.get("REQUIRE_PROMETHEUS"):
            pytest.fail(missing)
        pytest.skip(missing)
    return Path(found)


def find_promtool() -> Path:
    """Return the path of promtool, or skip the test, but not in CI."""
    return program(shutil.which("promtool"), "promtool, which evaluates the alerts,")


def samples(text: str) -> dict[str, float]:
    """Return the metrics in Prometheus's text format by series, as they are written."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
    return {name: float(value) for name, _, value in lines}


def series(name: str, target: Mapping[str, str], values: str) -> dict[str, str]:
    """Return an input of promtool: a series as an operator exposes it, with the labels of its target."""
    family, _, labels = name.rstrip("}").partition("{")
    of_target = [f'{label}="{value}"' for label, value in target.items()]
    return {"series": f"{family}{{{','.join([*of_target, *filter(None, [labels])])}}}", "values": values}


def evaluate(promtool: Path, directory: Path, alerts: Mapping[str, Any], test: Mapping[str, Any]) -> None:
    """Fail unless promtool finds what a test expects of the alerts, which are the spec of a PrometheusRule."""
    suite = {"rule_files": ["rules.yaml"], "tests": [{"interval": "1m", **test}]}
    (directory / "rules.yaml").write_text(yaml.safe_dump(alerts))
    (directory / "test.yaml").write_text(yaml.safe_dump(suite))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
