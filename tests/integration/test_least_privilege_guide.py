"""The guide to permissions, done with a project of ``rolecall init``."""

from pathlib import Path

from tests.guides import FILE, Step, guide
from tests.integration.shell import do
from tests.outcomes import check

GUIDE = guide("docs/guides/least-privilege.md")
FILES = dict(FILE.findall(GUIDE.text))
PROJECT = """
rolecall init --domain example.com web
cd web
rolecall create api --group shop --version v1 --kind Website --generate-role
"""


def written(name: str) -> str:
    """Return the commands that write a file that the guide shows."""
    return f"cat > {name} <<'END'\n{FILES[name]}END"


def test_commands_of_the_guide_print_the_shown_output(tmp_path: Path) -> None:
    start = Step("true")
    before = {
        start.command: PROJECT + written("roles/website/tasks/main.yml"),
        # The page has this command twice: the second time after the blacklist.
        "rolecall rbac --from records --write": (f"if [ -e cluster_role.yaml ]; then\n{written('watches.yaml')}\nfi"),
    }
    check(GUIDE, do([start, *GUIDE.steps], tmp_path, tmp_path / "state", before)[1:])
