"""The command behind ``make release``: on an error, it exits with 1 and a message, and leaves no files."""

import argparse
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tools.release.artifacts import Artifacts
from tools.release.errors import ReleaseError
from tools.release.source import check_release, commands_to_publish, commit_release, keep_branch

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Make the release that the command line describes."""
    options = _parser().parse_args()
    target = ROOT / "dist" / options.version
    try:
        check_release(ROOT, options.version, target)
        _make(options, target)
    except ReleaseError as error:
        sys.exit(f"make release: {error}")


def _make(options: argparse.Namespace, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rolecall-release-") as directory:
        clone, made = Path(directory, "rolecall"), Path(directory, "made")
        made.mkdir()
        _report(f"Committing release {options.version} in a clone")
        section = commit_release(ROOT, clone, options.version, datetime.now(UTC).date())
        (made / f"rolecall-{options.version}-changes.md").write_text(section)
        artifacts = Artifacts(clone, made, options.version, options.uv, options.image)
        steps = [
            ("Building the wheel", artifacts.wheel),
            ("Writing the bundle for OLM", artifacts.bundle),
            ("Writing the bill of materials", artifacts.bill_of_materials),
            ("Listing the licenses", artifacts.licenses),
            (f"Building the image {options.image}, which takes minutes", artifacts.image_archive),
            ("Computing checksums", artifacts.checksums),
        ]
        for text, step in steps:
            if options.has_image or step != artifacts.image_archive:
                _report(text)
                step()
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(made, target)
        keep_branch(ROOT, clone, options.version)
    _print_summary(target, options.version)


def _print_summary(target: Path, version: str) -> None:
    files = sorted(target.iterdir())
    for path in files:
        sys.stdout.write(f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(ROOT)}\n")
    sys.stdout.write("Nothing is published. To publish the release, run:\n")
    for command in commands_to_publish(version, [str(path.relative_to(ROOT)) for path in files]):
        sys.stdout.write(f"  {command}\n")


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make release", description="Build all files of a release without publishing them."
    )
    parser.add_argument("--version", required=True, help="the version, such as 1.2.3")
    parser.add_argument("--image", required=True, help="the name by which clusters pull the operator's image")
    parser.add_argument(
        "--uv", type=_program, default="uv", metavar="PROGRAM", help="the program uv (default: %(default)s)"
    )
    parser.add_argument("--no-image", dest="has_image", action="store_false", help="omit the image")
    return parser


def _program(text: str) -> str:
    """Return the absolute path of a program given by path, because commands run in other directories."""
    return str(Path(text).absolute()) if "/" in text else text


if __name__ == "__main__":
    main()
