"""The command behind ``make bundle``: writes the bundle to deploy/olm."""

import argparse
import shutil
import sys
import tomllib
from pathlib import Path

from tools.bundle.deployed import BundleError
from tools.bundle.files import bundle_files
from tools.bundle.service_version import Release

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Write the bundle for the version and image on the command line. Exit with 1 and a message on failure."""
    options = _parser().parse_args()
    try:
        files = bundle_files(ROOT / "deploy", Release(options.version, options.image))
    except BundleError as error:
        sys.exit(f"make bundle: {error}")
    directory = ROOT / "deploy" / "olm"
    shutil.rmtree(directory / "bundle", ignore_errors=True)
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.stdout.write(f"deploy/olm/bundle: {len(files)} files for version {options.version} and image {options.image}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bundle", description="Write the OLM bundle from deploy/.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parser.add_argument("--version", default=project["version"], help="the release (default: the project's version)")
    parser.add_argument("--image", required=True, help="the operator's image, as the cluster pulls it")
    return parser


if __name__ == "__main__":
    main()
