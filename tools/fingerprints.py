"""Writes the fingerprints of the functions that patches rely on: ``python -m tools.fingerprints``.

Add a release to ``RELEASES`` when the tests pass with it, or a function to a patch, then run this command. Each release
has a directory with the contents of ``site-packages``, such as ``ansible-core-2.19.14``. The command installs missing
releases: from PyPI, and kubernetes.core from its release of the ``ansible`` package or from Galaxy.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rolecall.runner.warm.ansible_patches.fingerprints import (
    DATA,
    UNREADABLE,
    Fingerprints,
    digests_of,
    file_digest,
    source_of,
)
from rolecall.runner.warm.ansible_patches.patches import (
    PATCHES,
    Patch,
    installed_search_path,
    package_of,
    patch_statuses,
)
from rolecall.workbench.planned.playbook import FINGERPRINTS, PATCH

RELEASES: Mapping[str, Iterable[str]] = {
    "ansible-core": ("2.18.19", "2.19.14", "2.20.10", "2.21.5", "2.22.0rc1"),
    "ansible-runner": ("2.4.3",),
    "kubernetes": ("37.0.2",),
    "kubernetes.core": ("2.4.0", "3.2.0", "4.0.0", "5.4.1", "6.2.0", "6.4.0", "6.6.0"),
}
"""The releases that the patches are tested with."""

_ANSIBLE_PACKAGES = {
    "2.4.0": "8.7.0",
    "3.2.0": "10.7.0",
    "5.4.1": "11.13.0",
    "6.2.0": "12.3.0",
    "6.4.0": "13.8.0",
    "6.6.0": "14.5.0",
}
"""Releases of kubernetes.core, each with a release of the package ``ansible`` that contains it."""

_COLLECTION = Path("ansible_collections", "kubernetes", "core")
_NEWEST_PYTHON = "3.14"
FILES: Mapping[Path, Sequence[Patch]] = {DATA: PATCHES, FINGERPRINTS: [PATCH]}
"""The patches of each data file."""

SOURCES = Path("~/.cache/rolecall/sources").expanduser()


def main() -> None:
    """Write the data file, check it, or try a release. Exit with 1 if a check fails or sources aren't available."""
    options = _parser().parse_args()
    try:
        if options.release:
            sys.exit(_try_release(options.release, options.sources))
        contents = {path: _text(_fingerprints(patches, options.sources)) for path, patches in FILES.items()}
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"tools.fingerprints: {error}")
    for path, text in contents.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} isn't up to date: run python -m tools.fingerprints")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fingerprints", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if something would change")
    parser.add_argument(
        "--release",
        metavar="PACKAGE==VERSION",
        help="write nothing, print the patches that this release would disable, exit with 1 if there are any",
    )
    parser.add_argument(
        "--sources", type=Path, default=SOURCES, help="the directory with the releases (default: %(default)s)"
    )
    return parser


def _try_release(wanted: str, sources: Path) -> int:
    package, _, release = wanted.partition("==")
    path = [str(release_sources(package, release, sources)), *installed_search_path(os.environ)]
    found = [patch_statuses(Fingerprints.load(file), path, patches) for file, patches in FILES.items()]
    disabled = [status for statuses in found for status in statuses if status.state == "disabled"]
    for status in disabled:
        sys.stdout.write(f"{status.name}: {status.reason}\n")
    return 1 if disabled else 0


def _fingerprints(patches: Iterable[Patch], sources: Path) -> Fingerprints:
    """Return the fingerprints of all functions in all releases. Raises OSError and subprocess.CalledProcessError."""
    modules: dict[str, set[str]] = defaultdict(set)
    for function in (each for patch in patches for each in (*patch.functions, *patch.optional)):
        module, _, name = function.partition(":")
        modules[module].add(name)
    found = Fingerprints()
    for package, releases in RELEASES.items():
        own = {module: names for module, names in modules.items() if package_of(module) == package}
        for release in releases:
            directory = release_sources(package, release, sources)
            for module, names in own.items():
                _add(found, module, names, (f"{package} {release}", directory))
    return found


def _add(found: Fingerprints, module: str, names: set[str], origin: tuple[str, Path]) -> None:
    release, directory = origin
    source = source_of(module, [str(directory)])
    if source is not None:
        found.files.setdefault(module, {}).setdefault(file_digest(source), []).append(release)
    for name, digest in digests_of(source, names).items():
        if digest == UNREADABLE:
            raise OSError(f"Python {platform.python_version()} can't parse {module} of {release}: use a newer one")
        found.functions.setdefault(f"{module}:{name}", {}).setdefault(digest, []).append(release)


def _text(found: Fingerprints) -> str:
    return json.dumps({"functions": found.functions, "files": found.files}, indent=1, sort_keys=True) + "\n"


def release_sources(package: str, release: str, sources: Path = SOURCES) -> Path:
    """Return the directory of a release, as in ``site-packages``; the release is installed there if it's missing.

    Raises OSError and subprocess.CalledProcessError.
    """
    directory = sources / f"{package}-{release}"
    if directory.is_dir():
        return directory
    sys.stderr.write(f"Installing {package} {release} into {directory}\n")
    partial = directory.with_name(f".{directory.name}")
    shutil.rmtree(partial, ignore_errors=True)
    if package == "kubernetes.core" and release not in _ANSIBLE_PACKAGES:
        _run("ansible-galaxy", "collection", "install", "--no-deps", "-p", partial, f"{package}:{release}")
    else:
        wanted = f"ansible=={_ANSIBLE_PACKAGES[release]}" if package == "kubernetes.core" else f"{package}=={release}"
        uv = shutil.which("uv") or ".venv-uv/bin/uv"
        _run(
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python-version",
            _NEWEST_PYTHON,
            "--target",
            partial,
            wanted,
        )
    if package == "kubernetes.core":  # the package ansible has a hundred other collections
        only = directory.with_name(f".{directory.name}-only")
        shutil.rmtree(only, ignore_errors=True)
        shutil.copytree(partial / _COLLECTION, only / _COLLECTION)
        shutil.rmtree(partial)
        partial = only
    partial.rename(directory)
    return directory


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
