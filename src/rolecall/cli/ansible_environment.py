"""Ansible as the commands prepare it: the installed release, and the environment in which runs find their settings.

The roles path, the gathering of facts, and whether conditions must be boolean become environment variables of the
operator, which its runs and the fork server inherit, unless the user has set them. Relative paths that both the
operator and its runs read become absolute, because a run has another working directory.

``rolecall run`` and ``rolecall plan`` share this module, so that a role finds the same settings in both.
"""

import os
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rolecall.runner.config.ansible_config import (
    ROLES_PATH,
    AnsibleConfig,
    check_path,
    expanded,
    release_numbers,
    roles_path,
)
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.logs import get_logger

MINIMUM = "2.18"
logger = get_logger("cmd")


def check_ansible_core() -> None:
    """Raise ConfigurationError unless this Python has a supported ansible-core. Don't import it."""
    advice = f"install it with pip install 'ansible-core>={MINIMUM}'"
    try:
        found = version("ansible-core")
    except PackageNotFoundError:
        raise ConfigurationError(f"ansible-core is not installed: {advice}") from None
    if release_numbers(found)[:2] < release_numbers(MINIMUM):
        raise ConfigurationError(f"found ansible-core {found}, expected {MINIMUM} or newer: {advice}")


def search_paths(settings: Settings) -> dict[str, str]:
    """Return the environment variables that flags set, for both the search for roles and Ansible."""
    paths = {"ANSIBLE_ROLES_PATH": settings.roles_path, "ANSIBLE_COLLECTIONS_PATH": settings.collections_path}
    found = {variable: value for variable, value in paths.items() if value}
    for variable, value in found.items():
        logger.info("Set the environment variable", envVar=variable, value=value)
    return found


def ansible_defaults_for(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of runs for which the user has set no value, or a relative path.

    Raises ConfigurationError for a directory of runs whose path they can't quote.
    """
    if os.pathsep in str(Path.cwd()):
        problem = f"{os.pathsep!r} separates directories in ANSIBLE_ROLES_PATH: rename the directory"
        raise ConfigurationError(f"the working directory is {str(Path.cwd())!r}, and {problem}")
    directories = {"TMPDIR": Path(tempfile.gettempdir()), "--work-dir": settings.work_directory}
    for name, path in directories.items():
        try:
            if path is not None:
                check_path(path.resolve())
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from error
    conditionals = "true" if settings.allow_broken_conditionals else ""
    return {
        **absolute_paths(Path.cwd(), environment),
        ROLES_PATH: roles_path(Path.cwd(), environment),
        **unless_configured("gathering", settings.gathering, environment),
        **unless_configured("allow_broken_conditionals", conditionals, environment),
    }


def unless_configured(key: str, default: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable for a key of ansible.cfg; empty without a default or if the key is configured."""
    variable = f"ANSIBLE_{key.upper()}"
    is_set = variable in environment or key in AnsibleConfig.find(environment).defaults
    return {} if is_set or not default else {variable: default}


def absolute_paths(directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with a relative path, with paths below the directory instead."""
    found = {}
    if config := environment.get("ANSIBLE_CONFIG"):
        found["ANSIBLE_CONFIG"] = str(directory / expanded(config))
    if paths := environment.get("ANSIBLE_COLLECTIONS_PATH"):
        absolute = (str(directory / expanded(each)) for each in paths.split(os.pathsep) if each)
        found["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(absolute)
    return found
