"""``rolecall rbac``: writes the RBAC rules that an operator needs, or compares them with those that it has.

Without ``--compare`` and ``--write`` the exit code is 0. With ``--compare``, 0 means that the rules are equal, 2 that
they differ; with ``--write``, 2 means that a permission is still missing. 1 means that the rules can't be determined,
or that a file can't be updated; one line on standard error gives the reason. 64 means an invalid command line.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, Parser
from rolecall.system.logs import printable

if TYPE_CHECKING:
    from rolecall.workbench.permissions.manifests import Grant, Permission
    from rolecall.workbench.permissions.needs import FlagNeeds, Source
    from rolecall.workbench.permissions.project_files import ProjectFiles, Update

DIFFERENT = 2
NARROWER_SECRETS = (
    "narrower: name Secret in the blacklist of the watch (a changed Secret then starts no run), use a fixed name (the "
    "rule then has resourceNames), or watch only some namespaces, with Roles"
)
_PROJECT = Path()
"""The value of ``--write`` without a directory."""

EPILOG = (
    "The rules are the smallest that the recorded runs needed. Comments list the tasks that no recorded run has "
    "performed: the rules don't cover them. With --write and --compare, the flags of the operators in deploy and "
    "config, next to the watches file, count too: leader election, shards, --metrics-require-rbac, and the dashboard. "
    "What they need isn't too much, and it is missing if no role there grants it. Exit codes with --compare: 0 equal, "
    "2 different, 1 an error, 64 an invalid command line. Exit codes with --write: 0 the files have all permissions, "
    "2 one has to be added by hand, 1 an error, and no file was changed, 64 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "rbac",
        help="write the RBAC rules that the recorded runs needed, or compare them with others",
        description="Writes the smallest RBAC rules for the recorded requests of runs and for the operator's own "
        "work, each with the kinds and tasks that need it. With --compare, it prints missing and excess "
        "permissions of existing rules instead.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--from", dest="directory", type=Path, required=True, metavar="DIR", help="the directory of --record-dir"
    )
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=_PROJECT,
        metavar="DIR",
        help="add the missing rules to the roles in this directory and print the changes; default: config/rbac "
        "or deploy/rbac next to the watches file",
    )
    actions.add_argument(
        "--compare",
        type=Path,
        action="append",
        metavar="PATH",
        help="a file or directory with the Roles and ClusterRoles of the operator; can be repeated",
    )
    parser.add_argument(
        "--watches-file",
        type=Path,
        default=Path("watches.yaml"),
        metavar="FILE",
        help="the watches file of the operator (default: %(default)s)",
    )
    parser.add_argument(
        "--leader-election",
        metavar="NAMESPACE/NAME",
        help="the Lease for leader election (default with --write and --compare: that of the flags of the operator)",
    )
    parser.add_argument(
        "--shards", action="store_true", help="the replicas share the work with 'rolecall run --shards'"
    )
    parser.add_argument(
        "--name", default="operator", metavar="NAME", help="the name of the roles (default: %(default)s)"
    )
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=lambda options: _rbac(options, parser))


def _rbac(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Imported late: other commands don't need these modules.
    from rolecall.runner.config.watches import load_watches  # noqa: PLC0415
    from rolecall.runner.config.yaml_reader import ConfigurationError  # noqa: PLC0415
    from rolecall.workbench.permissions.manifests import RbacError, minimal, read_grants  # noqa: PLC0415
    from rolecall.workbench.permissions.needs import (  # noqa: PLC0415
        Election,
        limited,
        needs_of,
        read_access_sets,
        sources_of,
    )
    from rolecall.workbench.permissions.project_files import ProjectFiles, rbac_directory  # noqa: PLC0415

    namespace, _, name = (options.leader_election or "/").partition("/")
    if options.leader_election and not (namespace and name):
        parser.error(f"argument --leader-election: expected NAMESPACE/NAME, found {options.leader_election!r}")
    if options.shards and not name:
        parser.error("argument --shards: needs --leader-election NAMESPACE/NAME, as 'rolecall run --shards' does")
    try:
        sources = sources_of(load_watches(options.watches_file, os.environ), read_access_sets(options.directory))
        election = Election(namespace, name, options.shards) if name else None
        if options.write is None and not options.compare:
            _write(minimal(needs_of(sources, election)), options.name, sources)
            return 0
        flags = _needs_of_flags(options.watches_file.parent, options.compare or [], has_election=election is not None)
        own_namespace = namespace or flags.namespace
        if options.write is not None:
            directory = rbac_directory(options.watches_file.parent) if options.write is _PROJECT else options.write
            files = ProjectFiles(directory, own_namespace)
            grants = list(files.grants())
        else:
            files = None
            grants = [grant for path in options.compare for grant in read_grants(path, own_namespace)]
        sources = limited(sources, (each.permission for each in grants))
        needed = minimal([*needs_of(sources, election), *flags.needs])
        return _update(needed, sources, files, flags) if files else _compare(needed, grants, sources, flags)
    except (ConfigurationError, RbacError) as error:
        sys.stderr.write(f"rolecall rbac: {printable(str(error))}\n")
        return 1


def _needs_of_flags(project: Path, paths: Sequence[Path], *, has_election: bool) -> "FlagNeeds":
    """Read the manifests of a project; the components among the compared paths count as deployed."""
    from rolecall.cli.validate import DEFAULT_MANIFEST_DIRECTORIES, container_settings  # noqa: PLC0415
    from rolecall.workbench.permissions.manifests import grants_of  # noqa: PLC0415
    from rolecall.workbench.permissions.needs import FlagNeeds, needs_of_settings  # noqa: PLC0415
    from rolecall.workbench.project.manifests import deployed_operators  # noqa: PLC0415

    directories = [project / each for each in DEFAULT_MANIFEST_DIRECTORIES if (project / each).is_dir()]
    found = FlagNeeds()
    for operator in deployed_operators(directories, container_settings, [each for each in paths if each.is_dir()]):
        found.namespace = found.namespace or operator.namespace
        settings = replace(operator.settings, leader_elect=False) if has_election else operator.settings
        found.needs += needs_of_settings(settings, operator.namespace)
        for role in operator.roles:
            own = operator.namespace if role["kind"] == "Role" else ""
            namespace = role["metadata"].get("namespace") or own
            found.granted += [each.permission for each in grants_of(role, namespace, "")]
    return found


def _write(needed: "dict[Permission, set[str]]", name: str, sources: "list[Source]") -> None:
    from rolecall.workbench.permissions.manifests import manifests_of  # noqa: PLC0415

    kinds = ", ".join(source.watch.gvk.kind for source in sources if source.recorded)
    sys.stdout.write(f"# The least that the recorded runs needed (kinds: {kinds}), with the operator's own needs.\n")
    sys.stdout.writelines(f"# {printable(line)}\n" for line in _untried(sources))
    sys.stdout.writelines(f"{line}\n" for line in manifests_of(needed, name))


def _compare(
    needed: "dict[Permission, set[str]]", grants: "list[Grant]", sources: "list[Source]", flags: "FlagNeeds"
) -> int:
    from rolecall.workbench.permissions.manifests import excess  # noqa: PLC0415

    granted = [grant.permission for grant in grants]
    lacking, superfluous = flags.lacking(needed, granted), set(excess(needed, granted))
    lines = [f"missing: {each}, for {'; '.join(sorted(needed[each]))}" for each in sorted(lacking)]
    lines += [
        f"too much: {grant.permission}, in {grant.location}" for grant in grants if grant.permission in superfluous
    ]
    lines = lines or ["equal: nothing is missing, and nothing is too much"]
    sys.stdout.writelines(f"{printable(line)}\n" for line in (*lines, *_all_secrets(needed), *_untried(sources)))
    return DIFFERENT if lacking or superfluous else 0


def _update(
    needed: "dict[Permission, set[str]]", sources: "list[Source]", files: "ProjectFiles", flags: "FlagNeeds"
) -> int:
    from rolecall.workbench.permissions.manifests import excess  # noqa: PLC0415
    from rolecall.workbench.permissions.project_files import write  # noqa: PLC0415

    grants = list(files.grants())
    granted = [grant.permission for grant in grants]
    updates = files.updates(sources)
    write(updates)
    lines = [line for update in updates for line in _diff(update)] or ["unchanged: no rule has to be added or removed"]
    by_hand = sorted(flags.lacking(needed, [*granted, *files.generated]))
    for each in by_hand:
        kind = "Role" if each.namespace else "ClusterRole"
        lines.append(f"missing: {each}, for {'; '.join(sorted(needed[each]))}: add it to a {kind}")
    superfluous = set(excess(needed, granted))
    lines += [f"too much: {each.permission}, in {each.location}" for each in grants if each.permission in superfluous]
    sys.stdout.writelines(f"{printable(line)}\n" for line in (*lines, *_all_secrets(needed), *_untried(sources)))
    return DIFFERENT if by_hand else 0


def _all_secrets(needed: "dict[Permission, set[str]]") -> Iterator[str]:
    """Yield lines if the operator needs to list or watch Secrets regardless of their names, and so can read each."""
    from rolecall.workbench.permissions.manifests import reads_all_secrets  # noqa: PLC0415

    wide = [each for each in needed if reads_all_secrets(each)]
    if wide:
        verbs = " and ".join(sorted({each.verb for each in wide}))
        reasons = "; ".join(sorted({reason for each in wide for reason in needed[each]}))
        yield f"all Secrets: {verbs}, for {reasons}"
        yield NARROWER_SECRETS


def _diff(update: "Update") -> Iterator[str]:
    names = (str(update.path), str(update.path))
    return difflib.unified_diff(update.old.splitlines(), update.new.splitlines(), *names, lineterm="")


def _untried(sources: "list[Source]") -> Iterator[str]:
    """Yield a line for each task and kind without a record."""
    for source in sources:
        kind = source.watch.gvk.kind
        if source.recorded is None:
            yield f"not recorded: no run of {kind}"
        else:
            yield from (f"not recorded: {kind}, {task}" for task in source.unexercised())
