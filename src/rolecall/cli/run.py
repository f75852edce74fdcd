"""``rolecall run`` and ``ansible-operator run``: runs the operator until it gets SIGTERM or SIGINT.

``rolecall run`` is for interactive use: it takes free ports and private directories, and an invalid command line exits
with 2. ``ansible-operator run`` is for images and manifests made for the Go runner: it has the Go runner's ports,
paths, durations, and exit codes, logs JSON unless a flag sets another format, and uses the wording of the Go runner's
log (``go_runner_log``).

Flags of the Go runner keep their names and their meaning. A stop lets running plays finish within the grace period,
interrupts the others, and exits with 0. An invalid ``watches.yaml`` is reported in one line, with exit code 1.
"""

import argparse
import asyncio
import faulthandler
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from rolecall.cli.ansible_environment import ansible_defaults_for, check_ansible_core, search_paths
from rolecall.cli.flags import LOG_EVENTS
from rolecall.cli.go_runner_log import use_go_runner_wording
from rolecall.cli.parsing import (
    FlagFormatter,
    Parser,
    add_flags,
    apply_flags,
    given_flags,
    join_flag_values,
    settings_of,
)
from rolecall.cli.text_log import TextLog
from rolecall.kube.errors import KubeError
from rolecall.runner.config.settings import LogEvents, Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.election import lease_guard
from rolecall.system import logs
from rolecall.system.imports import without_collections
from rolecall.system.logs import LogSettings, get_logger, printable

logger = get_logger("cmd")

STOP_LIMIT_SECONDS = 30.0
"""How long a stop may take after the last reconcile; what usually takes a second may hang."""

EPILOG = (
    "WATCH_NAMESPACE lists the namespaces to watch, separated by commas; unset or empty means all namespaces. "
    "KUBECONFIG selects the cluster; if it is unset, the pod's service account is used, then ~/.kube/config."
)


@dataclass(frozen=True, slots=True)
class Program:
    """The defaults and the strictness of one name of the program."""

    name: str
    settings: Settings
    logs: LogSettings
    usage_exit_code: int = 2
    is_drop_in: bool = False
    """Whether every command line that the Go runner accepts must be accepted."""


def rolecall_program() -> Program:
    """Return the program ``rolecall run``."""
    return Program("rolecall run", Settings(), LogSettings())


def ansible_operator_settings() -> Settings:
    """Return the defaults of ``ansible-operator`` that existing manifests, images, and roles rely on."""
    return Settings(
        mark_unsafe=False,
        drops_unknown_options=False,
        ready_conditions=False,
        moves_changed_conditions=True,
        follows_status_fields=True,
        ignores_zero_requeue=True,
        backoff_min_seconds=0.005,
        backoff_max_seconds=1000.0,
        grace_seconds=30.0,
        output_in_events=True,
        gathering="",
        allow_broken_conditionals=True,
        proxy_port=8888,
        user_metrics_port=5050,
        metrics_bind_address=":8443",
        health_probe_bind_address=":6789",
        # The path is part of the interface: volumes are mounted there. It is created with mode 0700.
        work_directory=Path("/tmp/ansible-operator/runner"),  # noqa: S108
        kubeconfig_directory=Path(tempfile.gettempdir()),
    )


def ansible_operator_program() -> Program:
    """Return the program ``ansible-operator run``."""
    return Program(
        "ansible-operator run",
        ansible_operator_settings(),
        LogSettings(encoder="json", time_encoding="rfc3339"),
        usage_exit_code=1,
        is_drop_in=True,
    )


def add_parser(commands: Any) -> None:
    """Add the command to the program ``rolecall``."""
    add_run_command(commands, rolecall_program())


def add_run_command(commands: Any, program: Program) -> argparse.ArgumentParser:
    """Add the command under one of its names and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run the operator for the kinds in watches.yaml",
        description="Watches the kinds in watches.yaml and runs the role of a kind for each of its objects that "
        "changes. Exits with 0 on SIGTERM or SIGINT.",
        epilog=EPILOG,
        usage=f"{program.name} [flags]",
        formatter_class=FlagFormatter,
    )
    add_flags(parser, program.settings, program.logs)
    parser.set_defaults(handler=lambda options: _run(options, program, parser))
    return parser


class _Quiet(Parser):
    """A parser that raises ValueError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise the message."""
        raise ValueError(message)


def settings_of_command(words: Sequence[str], program: Program) -> Settings | None:
    """Return the settings of the command ``run`` with these words; without a flag for workers, there are 0.

    Return None if the program rejects the words. The environment isn't read.
    """
    parser = _Quiet(add_help=False)
    add_flags(parser, program.settings, program.logs)
    try:
        options, others = parser.parse_known_args(list(join_flag_values(words)))
    except ValueError:
        return None
    defaults = replace(program.settings, workers=0)
    return None if any(word.startswith("-") for word in others) else apply_flags(defaults, options)


def _run(options: argparse.Namespace, program: Program, parser: argparse.ArgumentParser) -> int:
    _check(options, program, parser)
    is_text = _configure_logs(_log_settings(options, program), program)
    _warn_about_deprecated_flags(options)
    try:
        check_ansible_core()
    except ConfigurationError as error:
        return _failed(program, "Failed to find ansible-core.", error)
    defaults = replace(program.settings, log_events=LogEvents.RESULTS.value) if is_text else program.settings
    settings = settings_of(options, defaults, os.environ)
    end_at = lease_guard.start_guard() if settings.leader_elect else None

    # Importing the operator takes a second, and neither the other commands nor the guard need it.
    with without_collections():
        from rolecall.runner.config.watches import load_watches  # noqa: PLC0415
        from rolecall.runner.operator import run_operator  # noqa: PLC0415

    os.environ.update(search_paths(settings))
    try:
        watches = load_watches(settings.watches_file, os.environ)
        os.environ.update(ansible_defaults_for(settings, os.environ))
    except ConfigurationError as error:
        return _failed(program, "Failed to load watches.", error)
    logger.info("Version", **{name: version(name) for name in ("rolecall", "ansible-core", "ansible-runner")})
    try:
        asyncio.run(run_operator(settings, watches, end_at=end_at, on_stop=limit_stop))
    except (ConfigurationError, KubeError, OSError) as error:  # OSError: a port in use, a directory of another user
        return _failed(program, "Proxy or operator exited with error.", error)
    except KeyboardInterrupt:  # before the operator listens to signals, or a second one when it has ended its work
        return 1
    return 0


def limit_stop() -> None:
    """End this process, which has nothing else to do, if it has not ended by itself in time."""
    # Works even if something blocks the loop or the interpreter, and prints where.
    faulthandler.dump_traceback_later(STOP_LIMIT_SECONDS, exit=True)


def _failed(program: Program, message: str, error: Exception) -> int:
    """Report why the operator does not run: as a log line for the Go runner's users, else as plain text. Return 1."""
    if program.is_drop_in:
        logger.error(message, error=str(error))
    else:
        sys.stderr.write(f"{program.name}: {printable(str(error))}\n")
    return 1


def _check(options: argparse.Namespace, program: Program, parser: argparse.ArgumentParser) -> None:
    """Exit if flags contradict each other, or if ``--ansible-log-events`` is invalid (the Go runner only warns)."""
    names = {flag.name for flag in given_flags(options)}
    for flag in given_flags(options):
        if flag.replaced_by in names:
            usage = f"--{flag.name} is the old name of --{flag.replaced_by}; use only one of them"
            parser.error(f"invalid flags usage: {usage}")
    if options.metrics_require_rbac and not options.metrics_secure:
        parser.error("--metrics-secure flag is required when --metrics-require-rbac is present")
    if options.ansible_log_events not in (None, *LOG_EVENTS) and not program.is_drop_in:
        found = options.ansible_log_events
        parser.error(f"argument --ansible-log-events: expected one of {', '.join(LOG_EVENTS)}, found {found!r}")


def _warn_about_deprecated_flags(options: argparse.Namespace) -> None:
    for flag in given_flags(options):
        if flag.replaced_by:
            better = "it has no effect" if flag.replaced_by == "nothing" else f"use --{flag.replaced_by} instead"
            notice = f"Flag --{flag.name} has been deprecated, {better}"  # as the Go runner prints it
            logger.warning(notice)


def _configure_logs(settings: LogSettings, program: Program) -> bool:
    """Configure the log, and return whether its lines are for people."""
    if is_text := logs.is_text(settings):
        logs.configure(settings, text=TextLog(is_colored=logs.is_colored(), is_complete=settings.level == "debug"))
    else:
        logs.configure(settings, *([use_go_runner_wording] if program.is_drop_in else []))
    return is_text


def _log_settings(options: argparse.Namespace, program: Program) -> LogSettings:
    defaults = program.logs
    if options.zap_devel:
        defaults = replace(defaults, encoder="console", level="debug", stacktrace_level="warning")
    return apply_flags(defaults, options)
