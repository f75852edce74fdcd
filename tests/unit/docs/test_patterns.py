"""The page about patterns shows the files of the project that its tests run."""

import yaml

from tests.guides import FILE, PROJECT

PAGE = (PROJECT / "docs/guides/patterns.md").read_text()
PATTERNS = PROJECT / "tests/integration/projects/patterns"
SHOWN = FILE.findall(PAGE)


def test_files_in_the_page_are_those_of_the_project() -> None:
    files = {name: content for name, content in SHOWN if name != "watches.yaml"}
    assert files == {name: (PATTERNS / name).read_text().removeprefix("---\n") for name in files}


def test_watches_in_the_page_are_those_of_the_project() -> None:
    watches = yaml.safe_load((PATTERNS / "watches.yaml").read_text())
    entries = [entry for name, content in SHOWN if name == "watches.yaml" for entry in yaml.safe_load(content)]
    assert entries
    assert [entry for entry in entries if entry not in watches] == []


def test_the_page_shows_the_tasks_and_variables_of_every_role() -> None:
    files = {
        str(path.relative_to(PATTERNS)) for part in ("tasks", "vars") for path in PATTERNS.glob(f"roles/*/{part}/*")
    }
    assert files == {name for name, _ in SHOWN} - {"watches.yaml"}
