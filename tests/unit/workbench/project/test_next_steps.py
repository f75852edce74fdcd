"""What a kept demo suggests can be copied: files that exist, and a sample that really is another one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.references import GVK
from rolecall.workbench.project.demo import KeptDemo, next_steps, open_page, write_edited_sample

KIND = GVK("example.com", "v1", "Site")


def sample(kind: str = "Site", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}


def kept(records: Path, edited: Path | None = None) -> KeptDemo:
    return KeptDemo("demo", Path("/k"), Path("/bin"), Path("/log"), records, 7, (KIND, GVK("", "v1", "Pod")), edited)


def test_the_first_number_in_the_spec_of_a_sample_is_raised(tmp_path: Path) -> None:
    samples = [sample("Other", size=1), sample(on=True, pool={"size": 3}, other=5)]
    written = write_edited_sample(samples, [KIND], tmp_path / "edited.yaml")

    assert written is not None
    assert yaml.safe_load(written.read_text())["spec"] == {"on": True, "pool": {"size": 4}, "other": 5}
    assert samples[1]["spec"]["pool"] == {"size": 3}


def test_samples_without_a_number_are_not_edited(tmp_path: Path) -> None:
    assert write_edited_sample([sample(on=True), sample()], [KIND], tmp_path / "edited.yaml") is None
    assert not list(tmp_path.iterdir())


def test_the_commands_name_the_newest_record_and_the_edited_sample(tmp_path: Path) -> None:
    for name in ("2026-1.jsonl", "2026-2.failed.jsonl"):
        (tmp_path / name).touch()
    text = next_steps(kept(tmp_path, Path("/edited.yaml")))

    assert f"rolecall record show {tmp_path}/2026-2.failed.jsonl\n" in text
    assert "rolecall plan -f /edited.yaml\n" in text
    assert f"rolecall rbac --from {tmp_path}\n" in text
    assert "kubectl get site.example.com,pod --all-namespaces\n" in text


def test_what_is_not_there_is_not_suggested(tmp_path: Path) -> None:
    text = next_steps(kept(tmp_path))

    assert "rolecall plan" not in text
    assert "record show" not in text


@pytest.mark.parametrize(
    ("environment", "is_terminal", "opened"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({"DISPLAY": ":0"}, False, False),
        ({}, True, False),
        ({"DISPLAY": ""}, True, False),
    ],
)
def test_the_page_is_opened_only_for_somebody_at_a_desktop(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    is_terminal: bool,  # noqa: FBT001 - a parameter of a test
    opened: bool,  # noqa: FBT001 - as above
) -> None:
    shown: list[str] = []

    def show(page: str) -> bool:
        shown.append(page)
        return True

    monkeypatch.setattr("webbrowser.open", show)
    assert open_page("http://127.0.0.1:1/", environment, is_terminal=is_terminal) is opened
    assert bool(shown) is opened


def test_the_address_of_the_page_is_told(tmp_path: Path) -> None:
    demo = replace(kept(tmp_path), page="http://127.0.0.1:1/")
    look = "\nLook at it: http://127.0.0.1:1/, or in the terminal: rolecall top --url http://127.0.0.1:1/\n"
    assert look in next_steps(demo)
    assert "Look at it" not in next_steps(kept(tmp_path))
