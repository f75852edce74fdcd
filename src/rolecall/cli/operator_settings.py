"""What flags and the environment make of the settings of an operator, and what settings make of Ansible's environment.

``rolecall run`` and ``rolecall plan`` share this: a role must find in a plan what it finds in the operator.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rolecall.cli.command_line import apply_flags
from rolecall.runner.config import ansible_defaults
from rolecall.runner.config.environment import (
    ansible_debug_logs,
    leader_election_id,
    output_verbosity,
    watch_namespaces,
)
from rolecall.runner.config.settings import LOG_EVENTS, Settings
from rolecall.system.logs import get_logger

logger = get_logger("cmd")


def settings_of(options: argparse.Namespace, defaults: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings that a command line and the environment ask for."""
    settings = apply_flags(defaults, options)
    if settings.log_events not in LOG_EVENTS:
        logger.error("unrecognized log level", flag="--ansible-log-events", value=settings.log_events)
        settings = replace(settings, log_events=defaults.log_events)
    return replace(
        settings,
        namespaces=watch_namespaces(environment),
        output_verbosity=output_verbosity(environment),
        debug_logs=ansible_debug_logs(environment),
        leader_election_id=settings.leader_election_id or leader_election_id(environment),
    )


def search_paths(settings: Settings) -> dict[str, str]:
    """Return the environment variables that flags set, for both the search for roles and Ansible."""
    paths = {"ANSIBLE_ROLES_PATH": settings.roles_path, "ANSIBLE_COLLECTIONS_PATH": settings.collections_path}
    found = {variable: value for variable, value in paths.items() if value}
    for variable, value in found.items():
        logger.info("Set the environment variable", envVar=variable, value=value)
    return found


def ansible_defaults_for(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that runs get because the user has set nothing else."""
    conditionals = "true" if settings.allow_broken_conditionals else ""
    return {
        ansible_defaults.ROLES_PATH: ansible_defaults.roles_path(Path.cwd(), environment),
        **ansible_defaults.unless_configured("gathering", settings.gathering, environment),
        **ansible_defaults.unless_configured("allow_broken_conditionals", conditionals, environment),
    }
