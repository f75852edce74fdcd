"""``rolecall generate``: generates files from other files.

``generate bundle`` exits with 0 if the bundle is written, with 1 after an error, and with 64 for an invalid command
line.
``generate crds`` exits with 0 if all is written or in sync, with 1 after an error, and with 64 for an invalid command
line. With ``--check`` it writes nothing and exits with 2 if something would change.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, Parser
from rolecall.cli.validate import DEFAULT_CRD_DIRECTORIES
from rolecall.system import logs
from rolecall.system.logs import LogSettings

if TYPE_CHECKING:
    from rolecall.workbench.project.crd_schema import Finding

DIFFERENT = 2
EPILOG = (
    "Exit codes: 0 done, or in sync; 1 an error, and then nothing is written; 2 with --check, if something would "
    "change; 64 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command and its subcommand."""
    generate = commands.add_parser(
        "generate", help="write CRDs or an OLM bundle", description="Generates files from other files."
    )
    things = generate.add_subparsers(title="commands", metavar="COMMAND")
    crds: Parser = things.add_parser(
        "crds",
        help="write the fields of CRDs from the argument specs of roles",
        description="Makes the schema of each watched kind's spec match the argument specs of its role: types, "
        "required fields, defaults, choices, elements, nested options, descriptions, and rules between options. Then "
        "the API server itself rejects a spec that the role would reject. Everything else in the files stays: limits, "
        "patterns, columns, the status, rules of your own, comments.",
        epilog=EPILOG,
    )
    crds.add_argument("kinds", nargs="*", default=(), metavar="KIND", help="a kind in watches.yaml (default: all)")
    crds.add_argument("--check", action="store_true", help="write nothing, and print what would change")
    crds.add_argument(
        "--watches-file",
        type=Path,
        default=Path("watches.yaml"),
        metavar="FILE",
        help="the watches file (default: %(default)s)",
    )
    crds.add_argument(
        "--crds",
        type=Path,
        metavar="PATH",
        help="the directory or file with the CRDs (default: deploy/crds, or config/crd/bases if only that exists)",
    )
    crds.usage_exit_code = OTHER_USAGE_EXIT_CODE
    crds.set_defaults(handler=_generate_crds)
    bundle: Parser = things.add_parser(
        "bundle",
        help="write the OLM bundle of an operator",
        description="Writes a bundle for the Operator Lifecycle Manager, v0 and v1, to olm/bundle in the directory of "
        "the manifests, and bundle.Dockerfile beside it. Reads the built manifests from standard input. The texts and "
        "links are in olm/base.yaml, the icon is olm/icon.svg or olm/icon.png, and the examples are in samples.",
        epilog="Example: kubectl kustomize deploy | rolecall generate bundle --release 0.1.0 --image "
        "registry.example/web:0.1.0",
    )
    bundle.add_argument("--release", required=True, metavar="VERSION", help="the operator's version, such as 0.1.0")
    bundle.add_argument("--image", required=True, metavar="IMAGE", help="the operator's image, as a cluster pulls it")
    bundle.add_argument("--channel", default="candidate", metavar="NAME", help="the channel (default: %(default)s)")
    bundle.add_argument(
        "--deploy",
        type=Path,
        default=Path("deploy"),
        metavar="DIR",
        help="the directory of the manifests (default: %(default)s)",
    )
    bundle.usage_exit_code = OTHER_USAGE_EXIT_CODE
    bundle.set_defaults(handler=_generate_bundle)


def _generate_crds(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need the parsers.
    from rolecall.runner.config.watches import load_watches  # noqa: PLC0415
    from rolecall.runner.config.yaml_reader import ConfigurationError  # noqa: PLC0415
    from rolecall.workbench.project.crd_generation import generate_crds  # noqa: PLC0415

    logs.configure(LogSettings(level="warning"))
    existing = [each for each in DEFAULT_CRD_DIRECTORIES if each.is_dir()]
    directories = [options.crds] if options.crds else existing or [*DEFAULT_CRD_DIRECTORIES[:1]]
    try:
        watches = load_watches(options.watches_file, os.environ)
    except ConfigurationError as error:
        return _failed([str(error)])
    done = generate_crds(watches, options.kinds, directories, os.environ)
    sys.stdout.writelines(_line(each) for each in done.changes)
    sys.stdout.writelines(f"note: {_line(each)}" for each in done.notes)
    sys.stdout.writelines(f"left out: {each}\n" for each in done.skipped)
    if done.errors:
        return _failed(done.errors)
    if not done.changes:
        sys.stdout.write("The CRDs match the argument specs\n")
        return 0
    if options.check:
        sys.stdout.write(f"Out of sync: 'rolecall generate crds' would change {_listed(done.texts)}\n")
        return DIFFERENT
    try:
        for path, text in done.texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        return _failed([f"{path}: cannot be written: {error.strerror}"])
    sys.stdout.write(f"Written: {_listed(done.texts)}\n")
    return 0


def _generate_bundle(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need it.
    from rolecall.workbench.bundle.files import bundle_files, write_bundle  # noqa: PLC0415
    from rolecall.workbench.bundle.manifests import BundleError  # noqa: PLC0415
    from rolecall.workbench.bundle.service_version import Release  # noqa: PLC0415

    try:
        release = Release(options.release, options.image)
        manifests = "" if sys.stdin.isatty() else sys.stdin.read()
        files = bundle_files(options.deploy, manifests, release, options.channel)
        write_bundle(options.deploy / "olm", files)
    except (BundleError, OSError) as error:
        return _failed([str(error)], "bundle")
    sys.stdout.write(
        f"{options.deploy / 'olm/bundle'}: {len(files)} files for version {options.release} and image {options.image}\n"
    )
    return 0


def _failed(errors: Iterable[str], thing: str = "crds") -> int:
    sys.stderr.writelines(f"rolecall generate {thing}: {each}\n" for each in errors)
    return 1


def _line(finding: "Finding") -> str:
    place = f"{finding.file}:{finding.line}" if finding.line else str(finding.file)
    return f"{place}: {finding.kind} {finding.path}: {finding.text}\n"


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(sorted(map(str, paths)))
