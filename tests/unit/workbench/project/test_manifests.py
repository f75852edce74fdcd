from pathlib import Path

import pytest

from rolecall.workbench.project.demo_inputs import read_manifests


def write(folder: Path, **files: str) -> Path:
    """Write files with the ending yaml into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def names(path: Path) -> list[str]:
    """Return the names of all objects of a path."""
    return [obj["name"] for obj in read_manifests(path)]


def test_a_file_gives_its_documents_in_order_without_empty_ones(tmp_path: Path) -> None:
    write(tmp_path, objects="---\nname: b\n---\n# nothing\n---\nname: a\n")
    assert names(tmp_path / "objects.yaml") == ["b", "a"]


def test_a_folder_goes_by_its_kustomization(tmp_path: Path) -> None:
    write(tmp_path, z="name: z", a="name: a", left="name: left", kustomization="resources: [z.yaml, nested, a.yaml]")
    write(tmp_path / "nested", inner="name: inner")
    assert names(tmp_path) == ["z", "inner", "a"]


def test_a_folder_without_one_goes_by_name(tmp_path: Path) -> None:
    write(tmp_path, z="name: z", a="name: a")
    (tmp_path / "README.md").write_text("no manifest")
    assert names(tmp_path) == ["a", "z"]


def test_a_kustomization_without_resources_gives_nothing(tmp_path: Path) -> None:
    assert names(write(tmp_path, kustomization="resources:", a="name: a")) == []


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        names(tmp_path / "nowhere")
