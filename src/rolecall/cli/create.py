"""``rolecall create api``: a new kind in a project, with all that it needs."""

import argparse
import sys
from pathlib import Path
from typing import Any

from rolecall.cli.init import report
from rolecall.scaffold import NewKind, ScaffoldError, create_api


def add_parser(commands: Any) -> None:
    """Add the command and its own command."""
    create = commands.add_parser(
        "create", help="add a kind to a project", description="Adds to a project of rolecall init."
    )
    things = create.add_subparsers(title="commands", metavar="COMMAND")
    api = things.add_parser(
        "api",
        help="add a kind: definition, sample, permissions, role or playbook, tests",
        description="Adds a kind that works at once and is there to be changed: its objects keep a message in a "
        "ConfigMap. Files that are there are never overwritten; watches.yaml, demo.yaml and the kustomizations get an "
        "entry more and keep everything else, comments too. If anything stands in the way, nothing is written.",
        epilog="Example: rolecall create api --group apps --version v1alpha1 --kind Website --generate-role",
    )
    api.add_argument("--group", required=True, metavar="GROUP", help="the API group, without the project's domain")
    api.add_argument("--version", required=True, metavar="VERSION", help="the API version, such as v1alpha1")
    api.add_argument("--kind", required=True, metavar="KIND", help="the kind, such as Website")
    api.add_argument(
        "--plural", metavar="WORD", help="the plural, such as websites (default: by the rules of simple English)"
    )
    api.add_argument(
        "--generate-role",
        action="store_true",
        help="reconcile the kind by a role; its playbook is for runs without an operator",
    )
    api.add_argument(
        "--generate-playbook", action="store_true", help="reconcile it by a playbook; with a role too, one that runs it"
    )
    api.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the folder of the project (default: the current one)",
    )
    api.set_defaults(handler=_create_api)


def _create_api(options: argparse.Namespace) -> int:
    wanted = NewKind(
        options.group,
        options.version,
        options.kind,
        options.plural,
        with_role=options.generate_role,
        with_playbook=options.generate_playbook,
    )
    try:
        changes = create_api(options.project, wanted)
        changes.write()
    except ScaffoldError as error:
        sys.stderr.write(f"rolecall create api: {error}\n")
        return 1
    name = options.kind.lower()
    tasks = f"roles/{name}/tasks/main.yml" if options.generate_role else f"playbooks/{name}.yml"
    report("create api", changes, ("make demo", f"edit {tasks}, and with it deploy/crds and deploy/rbac", "make test"))
    return 0
