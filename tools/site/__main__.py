"""The command behind ``make site``: builds the documentation into .site/html and checks what was built."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.built import problems
from tools.site.navigation import navigation
from tools.site.pages import ROOT, pages, stage

HERE = Path(__file__).parent
FOLDER = ROOT / ".site"


def main() -> None:
    """Build and check the site, and print where it is. Exit with 1 and messages on failure."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    stage(FOLDER / "pages")
    shutil.copytree(HERE / "assets", FOLDER / "pages" / "assets")
    config = FOLDER / "mkdocs.yml"
    # JSON is YAML too.
    config.write_text(f"{(HERE / 'mkdocs.yml').read_text()}nav: {json.dumps(navigation(pages()))}\n")
    build = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", config],
        capture_output=True,
        text=True,
        check=False,
    )
    if build.returncode:
        sys.exit(f"make site: the build has failed\n{build.stdout}{build.stderr}")
    if found := problems(FOLDER / "html"):
        sys.exit("\n".join(["make site: not everything is there", *found]))
    sys.stdout.write(f".site/html/index.html: {len(pages())} pages, every link leads somewhere\n")


if __name__ == "__main__":
    main()
