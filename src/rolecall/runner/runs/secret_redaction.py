"""Keeps secrets out of the files that a run leaves.

ansible-runner writes the whole environment of a play into a file, and a role may print its environment. So the secrets
of a run are passed as ``HiddenText``, which ``execve`` sees in the clear and JSON does not. Text that contains a secret
all the same is redacted before it is written, or when the run ends at the latest.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_SHOWN_PREFIXES = ("ANSIBLE_", "AWX_", "RUNNER_", "ROLECALL_", "LC_")
_SHOWN = frozenset({"PATH", "HOME", "LANG", "USER", "TMPDIR", "PYTHONPATH", "KUBECONFIG", "K8S_AUTH_KUBECONFIG"})
_REPLACEMENT = "(hidden)"


class HiddenText(list[str], os.PathLike[str]):
    """The value of an environment variable: ``execve`` takes its text, JSON shows the list ``["hidden"]``."""

    def __init__(self, text: str) -> None:
        super().__init__(["hidden"])
        self._text = text

    def __fspath__(self) -> str:
        """Return the text; there is no other way to it."""
        return self._text


def hide_environment(environment: Mapping[str, str]) -> dict[str, str | HiddenText]:
    """Hide every variable that is not known to be harmless, because an operator's environment may hold passwords."""
    return {
        name: value if name in _SHOWN or name.startswith(_SHOWN_PREFIXES) else HiddenText(value)
        for name, value in environment.items()
    }


def redact(value: Any, secrets: Iterable[str]) -> Any:
    """Replace secrets in every string of a JSON value. Dictionaries and lists are changed in place and returned."""
    secrets = [secret for secret in secrets if secret]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _REPLACEMENT)
    elif isinstance(value, dict):
        for key in value:
            value[key] = redact(value[key], secrets)
    elif isinstance(value, list):
        value[:] = [redact(item, secrets) for item in value]
    return value


def redact_folder(folder: Path, secrets: Iterable[str]) -> None:
    """Replace secrets in the output of a run, and remove the half-written events that a killed run leaves."""
    for partial in folder.glob("job_events/*-partial.json*"):
        partial.unlink(missing_ok=True)
    wanted = [secret.encode() for secret in secrets if secret]
    for name in ("stdout", "stderr"):
        path = folder / name
        content = path.read_bytes() if path.exists() else b""
        clean = content
        for secret in wanted:
            clean = clean.replace(secret, _REPLACEMENT.encode())
        if clean != content:
            path.write_bytes(clean)
