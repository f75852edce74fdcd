"""The ansible-core that runs need: checked before anything starts, without importing it."""

import re
from importlib.metadata import PackageNotFoundError, version

from rolecall.runner.config.errors import ConfigurationError

MINIMUM = "2.18"


def check_ansible_core() -> None:
    """Raise ConfigurationError unless this Python has an ansible-core that runs can use."""
    try:
        found = version("ansible-core")
    except PackageNotFoundError:
        raise ConfigurationError(f"ansible-core is not installed: {_advice()}") from None
    if release_numbers(found)[:2] < release_numbers(MINIMUM):
        raise ConfigurationError(f"found ansible-core {found}, expected {MINIMUM} or newer: {_advice()}")


def _advice() -> str:
    return f"install it with pip install 'ansible-core>={MINIMUM}'"


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (5, 3, 0) of "5.3.0-beta.1": three at most, none if unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
