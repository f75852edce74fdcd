"""The ansible-core that runs need: checked before anything starts, without importing it."""

from importlib.metadata import PackageNotFoundError, version

from rolecall.config.errors import ConfigurationError

MINIMUM = "2.18"


def check_ansible_core() -> None:
    """Raise ConfigurationError unless this Python has an ansible-core that runs can use."""
    try:
        found = version("ansible-core")
    except PackageNotFoundError:
        raise ConfigurationError(f"ansible-core is not installed: {_advice()}") from None
    if _numbers(found) < _numbers(MINIMUM):
        raise ConfigurationError(f"found ansible-core {found}, expected {MINIMUM} or newer: {_advice()}")


def _advice() -> str:
    return f"install it with pip install 'ansible-core>={MINIMUM}'"


def _numbers(text: str) -> tuple[int, ...]:
    """Return major and minor version of a release or pre-release."""
    return tuple(int(part) for part in text.split(".")[:2])
