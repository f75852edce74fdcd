"""``rolecall run``, which is ``ansible-operator run`` too: the operator, until it is told to stop.

Flags keep the names and the meaning that they have in the Go runner where it has them. SIGTERM and SIGINT stop it:
running plays are ended within the grace period, and the exit code is 0. A wrong ``watches.yaml`` is one line and exit
code 1.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rolecall import logs
from rolecall.cli.flags.command_line import FlagFormatter, add_flags, filled, given
from rolecall.cli.go_runner_wording import in_words_of_the_go_runner
from rolecall.cli.program import Program, rolecall_program
from rolecall.config import ansible_defaults
from rolecall.config.environment import debug_logs, election_id, namespaces_of, output_verbosity
from rolecall.config.errors import ConfigurationError
from rolecall.config.settings import LOG_EVENTS, Settings
from rolecall.kube.errors import KubeError
from rolecall.logs import LogSettings, get_logger

logger = get_logger("cmd")

EPILOG = (
    "WATCH_NAMESPACE names the namespaces to watch, with commas between them; unset or empty means all. "
    "KUBECONFIG names the cluster; without it the pod's service account is used, then ~/.kube/config."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program ``rolecall``."""
    add_run(commands, rolecall_program())


def add_run(commands: Any, program: Program) -> argparse.ArgumentParser:
    """Add the command under one of its names, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run the operator for the kinds of watches.yaml",
        description="Watches the kinds of watches.yaml and runs the role of each for every object that changes, until "
        "SIGTERM or SIGINT; then exits with 0.",
        epilog=EPILOG,
        usage=f"{program.name} [flags]",
        formatter_class=FlagFormatter,
    )
    add_flags(parser, program.settings, program.logs)
    parser.set_defaults(handler=lambda options: _run(options, program, parser))
    return parser


def _run(options: argparse.Namespace, program: Program, parser: argparse.ArgumentParser) -> int:
    # Loading the operator takes a second, which the other commands shall not pay for.
    from rolecall.config.watches import load_watches  # noqa: PLC0415
    from rolecall.operator import run_operator  # noqa: PLC0415

    _check(options, program, parser)
    logs.set_up(_log_settings(options, program), *([in_words_of_the_go_runner] if program.is_drop_in else []))
    _tell_of_deprecated_flags(options)
    settings = _settings(options, program, os.environ)
    os.environ.update(_environment(settings))
    try:
        watches = load_watches(settings.watches_file, os.environ)
    except ConfigurationError as error:
        return _failed(program, "Failed to load watches.", error)
    os.environ.update(_ansible_defaults(settings, os.environ))
    logger.info("Version", **{name: version(name) for name in ("rolecall", "ansible-core", "ansible-runner")})
    try:
        asyncio.run(run_operator(settings, watches))
    except (ConfigurationError, KubeError, OSError) as error:  # OSError: a port that is taken, a folder not ours
        return _failed(program, "Proxy or operator exited with error.", error)
    return 0


def _failed(program: Program, message: str, error: Exception) -> int:
    """Say why the operator does not run, for people as one line of text, else as a line of the log; return 1."""
    if program.is_drop_in:
        logger.error(message, error=str(error))
    else:
        sys.stderr.write(f"{program.name}: {error}\n")
    return 1


def _check(options: argparse.Namespace, program: Program, parser: argparse.ArgumentParser) -> None:
    """Refuse flags that contradict each other, and a choice of events that the Go runner lets pass with a word."""
    names = {flag.name for flag in given(options)}
    for flag in given(options):
        if flag.instead in names:
            parser.error(f"invalid flags usage: --{flag.name} is the old name of --{flag.instead}, give one of them")
    if options.metrics_require_rbac and not options.metrics_secure:
        parser.error("--metrics-secure flag is required when --metrics-require-rbac is present")
    if options.ansible_log_events not in (None, *LOG_EVENTS) and not program.is_drop_in:
        found = options.ansible_log_events
        parser.error(f"argument --ansible-log-events: expected one of {', '.join(LOG_EVENTS)}, found {found!r}")


def _tell_of_deprecated_flags(options: argparse.Namespace) -> None:
    for flag in given(options):
        if flag.instead:
            better = "it has no effect" if flag.instead == "nothing" else f"use --{flag.instead} instead"
            notice = f"Flag --{flag.name} has been deprecated, {better}"  # the words that the Go runner prints
            logger.warning(notice)


def _log_settings(options: argparse.Namespace, program: Program) -> LogSettings:
    defaults = program.logs
    if options.zap_devel:
        defaults = replace(defaults, form="console", level="debug", stacktrace_level="warning")
    return filled(defaults, options)


def _settings(options: argparse.Namespace, program: Program, environment: Mapping[str, str]) -> Settings:
    settings = filled(program.settings, options)
    if settings.log_events not in LOG_EVENTS:
        logger.error("unrecognized log level", flag="--ansible-log-events", value=settings.log_events)
        settings = replace(settings, log_events=program.settings.log_events)
    return replace(
        settings,
        namespaces=namespaces_of(environment),
        output_verbosity=output_verbosity(environment),
        debug_logs=debug_logs(environment),
        leader_election_id=settings.leader_election_id or election_id(environment),
    )


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables that flags set, which so reach the search for roles and Ansible alike."""
    paths = {"ANSIBLE_ROLES_PATH": settings.roles_path, "ANSIBLE_COLLECTIONS_PATH": settings.collections_path}
    found = {variable: value for variable, value in paths.items() if value}
    for variable, value in found.items():
        logger.info("Set the environment variable", envVar=variable, value=value)
    return found


def _ansible_defaults(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that runs get because the user has set nothing else."""
    roles_path = ansible_defaults.roles_path(Path.cwd(), environment)
    return {ansible_defaults.ROLES_PATH: roles_path} | ansible_defaults.gathering(settings.gathering, environment)
