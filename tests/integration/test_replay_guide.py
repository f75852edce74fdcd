"""The guide to replays, done as a reader does it: a failure of its own production, seen again and mended."""

from pathlib import Path

from tests.guides import guide, write_files
from tests.integration.shell import clone, do
from tests.outcomes import check

GUIDE = guide("docs/guides/replay.md")


def test_commands_of_the_guide_print_the_shown_output(tmp_path: Path) -> None:
    write_files(GUIDE.text, tmp_path / "files")
    start = "rolecall cluster start --name production"
    before = {"mkdir website": f"cd {tmp_path}", start: f"cp -R {tmp_path}/files/. ."}
    check(GUIDE, do(GUIDE.steps, clone(tmp_path), tmp_path / "state", before))
