"""``rolecall run``: the operator, until it is told to stop.

Flags keep the names and the meaning that they have in the Go runner where it has them. SIGTERM and SIGINT stop it:
running plays are ended within the grace period, and the exit code is 0. A wrong ``watches.yaml`` is one line and exit
code 1.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from rolecall import logs
from rolecall.app.errors import ConfigurationError
from rolecall.app.settings import Settings, default_workers, namespaces_of
from rolecall.kube.durations import format_duration, parse_duration
from rolecall.kube.errors import KubeError

_DEFAULTS = Settings()


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Says what the default of a flag is, where it has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, "") else super()._get_help_string(action)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "run",
        help="run the operator for the kinds of watches.yaml",
        description="Watches the kinds of watches.yaml and runs the role of each for every object that changes.",
        epilog="WATCH_NAMESPACE names the namespaces to watch, with commas between them; unset or empty means all. "
        "KUBECONFIG names the cluster; without it the pod's service account is used, then ~/.kube/config.",
        formatter_class=_HelpFormatter,
    )
    _add_operator_flags(parser)
    _add_ansible_flags(parser)
    _add_log_flags(parser)
    parser.set_defaults(handler=_run)


def _add_operator_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("operator")
    group.add_argument("--watches-file", type=Path, default=Path("watches.yaml"), metavar="FILE", help="what to watch")
    group.add_argument("--kubeconfig", metavar="FILE", help="the cluster to work in")
    workers: dict[str, Any] = {"type": _positive, "default": default_workers(), "metavar": "N"}
    group.add_argument("--max-concurrent-reconciles", help="runs at once, for each kind", **workers)
    period = _DEFAULTS.reconcile_period_seconds
    _add_duration(group, "--reconcile-period", period, "reconcile unchanged objects this often")
    _add_duration(group, "--backoff-min", _DEFAULTS.back_off_min_seconds, "the delay after a first failure")
    _add_duration(group, "--backoff-max", _DEFAULTS.back_off_max_seconds, "the longest delay after failures")
    _add_duration(group, "--graceful-shutdown-timeout", _DEFAULTS.grace_seconds, "how long a stop may take")
    group.add_argument(
        "--proxy-port", type=int, default=0, metavar="PORT", help="what runs talk to; 0 takes a free one"
    )
    yes_or_no: dict[str, Any] = {"type": _boolean, "nargs": "?", "const": True, "default": True, "metavar": "BOOL"}
    group.add_argument("--inject-owner-ref", help="whether what a run creates gets an owner reference", **yes_or_no)
    group.add_argument("--work-dir", type=Path, metavar="DIR", help="where runs leave their files; kept when given")


def _add_ansible_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Ansible")
    group.add_argument("--ansible-verbosity", type=int, default=_DEFAULTS.verbosity, metavar="N", help="how many -v")
    group.add_argument("--ansible-args", default="", metavar="WORDS", help="further words for ansible-playbook")
    group.add_argument("--ansible-roles-path", default="", metavar="PATH", help="sets ANSIBLE_ROLES_PATH")
    group.add_argument("--ansible-collections-path", default="", metavar="PATH", help="sets ANSIBLE_COLLECTIONS_PATH")
    group.add_argument(
        "--warm",
        type=_boolean,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="keep Ansible imported and fork each run from there",
    )
    choices: dict[str, Any] = {"type": str.lower, "choices": ("nothing", "tasks", "everything"), "default": "tasks"}
    group.add_argument("--ansible-log-events", help="which events of a run are logged", **choices)


def _add_log_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs")
    levels = ("debug", "info", "warning", "error")
    group.add_argument("--zap-log-level", choices=levels, default="info", help="the least level that is logged")
    forms: dict[str, Any] = {"choices": ("auto", "json", "console"), "default": "auto"}
    group.add_argument(
        "--zap-encoder", help="json for machines, console for people; auto looks for a terminal", **forms
    )


def _add_duration(group: Any, flag: str, default_seconds: float, text: str) -> None:
    group.add_argument(flag, type=_duration, default=format_duration(default_seconds), metavar="DURATION", help=text)


def _run(options: argparse.Namespace) -> int:
    # Loading the operator takes a second, which the other commands shall not pay for.
    from rolecall.app.operator import run_operator  # noqa: PLC0415
    from rolecall.app.watches import load_watches  # noqa: PLC0415

    logs.set_up(options.zap_log_level, options.zap_encoder)
    for flag, variable in (
        ("ansible_roles_path", "ANSIBLE_ROLES_PATH"),
        ("ansible_collections_path", "ANSIBLE_COLLECTIONS_PATH"),
    ):
        if value := getattr(options, flag):
            os.environ[variable] = value
    try:
        watches = load_watches(options.watches_file, os.environ)
        asyncio.run(run_operator(_settings(options), watches))
    except (ConfigurationError, KubeError, OSError) as error:  # OSError: a port that is taken, a folder not ours
        sys.stderr.write(f"rolecall run: {error}\n")
        return 1
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        watches_file=options.watches_file,
        kubeconfig=options.kubeconfig,
        namespaces=namespaces_of(os.environ),
        reconcile_period_seconds=options.reconcile_period,
        workers=options.max_concurrent_reconciles,
        back_off_min_seconds=options.backoff_min,
        back_off_max_seconds=options.backoff_max,
        grace_seconds=options.graceful_shutdown_timeout,
        verbosity=options.ansible_verbosity,
        ansible_args=_unquoted(options.ansible_args),
        log_events=options.ansible_log_events,
        inject_owner_reference=options.inject_owner_ref,
        warm=options.warm,
        proxy_port=options.proxy_port,
        work_directory=options.work_dir,
    )


def _unquoted(text: str) -> str:
    """Return the text without one pair of single quotes around it, which manifests often carry."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def _boolean(text: str) -> bool:
    values = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false, found {text!r}")
    return values[text.lower()]


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"a duration cannot be negative: {text!r}")
    return seconds
