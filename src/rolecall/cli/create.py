"""``rolecall create api``: adds a kind to a project."""

import argparse
import sys
from pathlib import Path
from typing import Any

from rolecall.cli.flags import BOOLEAN
from rolecall.cli.init import print_written_files


def add_parser(commands: Any) -> None:
    """Add the command and its subcommand."""
    create = commands.add_parser(
        "create", help="add a kind to a project", description="Adds to a project created by rolecall init."
    )
    things = create.add_subparsers(title="commands", metavar="COMMAND")
    api = things.add_parser(
        "api",
        help="add a kind: CRD, sample, permissions, role or playbook, tests",
        description="Adds a working example kind for you to change: its objects keep a message in a ConfigMap. "
        "Existing files are never overwritten. watches.yaml, demo.yaml and the kustomizations get one more entry; "
        "everything else in them, comments included, stays. If a file is in the way, the command writes nothing.",
        epilog="Example: rolecall create api --group apps --version v1alpha1 --kind Website",
    )
    api.add_argument("--group", required=True, metavar="GROUP", help="the API group, without the project's domain")
    api.add_argument("--version", required=True, metavar="VERSION", help="the API version, such as v1alpha1")
    api.add_argument("--kind", required=True, metavar="KIND", help="the kind, such as Website")
    api.add_argument(
        "--plural", metavar="WORD", help="the plural name, such as websites (default: the kind with an English plural)"
    )
    api.add_argument(
        "--namespaced",
        type=BOOLEAN.parse,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="false for a cluster-scoped kind: its role creates a namespace for what an object needs (default: true)",
    )
    api.add_argument(
        "--generate-role",
        action="store_true",
        help="reconcile the kind with a role; also writes a playbook that runs the role without an operator "
        "(default without --generate-playbook)",
    )
    api.add_argument(
        "--generate-playbook",
        action="store_true",
        help="reconcile the kind with a playbook; with --generate-role, the playbook runs the role",
    )
    api.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the directory of the project (default: the current directory)",
    )
    api.set_defaults(handler=_create_api)


def _create_api(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need it.
    from rolecall.workbench.project.scaffold import (  # noqa: PLC0415
        NewKind,
        ScaffoldError,
        create_api,
    )

    new_kind = NewKind(
        options.group,
        options.version,
        options.kind,
        options.plural,
        with_role=options.generate_role,
        with_playbook=options.generate_playbook,
        is_namespaced=options.namespaced,
    )
    try:
        files = create_api(options.project, new_kind)
        files.write()
    except ScaffoldError as error:
        sys.stderr.write(f"rolecall create api: {error}\n")
        return 1
    name = options.kind.lower()
    tasks = f"roles/{name}/tasks/main.yml" if new_kind.has_role else f"playbooks/{name}.yml"
    edit = f"edit {tasks}, together with deploy/crds and deploy/rbac"
    print_written_files("create api", files, ("make demo", edit, "make test"))
    return 0
