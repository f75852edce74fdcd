"""The command behind ``make site``: builds the documentation into .site/html and checks what was built."""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.built import problems
from tools.site.pages import ROOT, pages, stage

HERE = Path(__file__).parent
DIRECTORY = ROOT / ".site"


def main() -> None:
    """Build and check the site, and print where it is. Exit with 1 and messages on failure."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    stage(DIRECTORY / "pages")
    shutil.copytree(HERE / "assets", DIRECTORY / "pages" / "assets")
    config = shutil.copy(HERE / "mkdocs.yml", DIRECTORY)
    build = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", config],
        capture_output=True,
        text=True,
        check=False,
    )
    if build.returncode:
        sys.exit(f"make site: the build failed\n{build.stdout}{build.stderr}")
    if found := problems(DIRECTORY / "html"):
        sys.exit("\n".join(["make site: the site has invalid links", *found]))
    sys.stdout.write(f".site/html/index.html: {len(pages())} pages, all links are valid\n")


if __name__ == "__main__":
    main()
