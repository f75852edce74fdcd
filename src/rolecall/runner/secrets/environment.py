"""Keeps the secrets of a run out of the files that its process writes.

ansible-runner writes the whole environment of a play into a file, and a role may print its environment. So secret
variables are passed as ``HiddenText``, which ``execve`` sees in the clear and JSON doesn't, and text that contains a
secret nevertheless is redacted.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_SHOWN_PREFIXES = ("ANSIBLE_", "AWX_", "RUNNER_", "ROLECALL_", "LC_")
_SHOWN = frozenset({"PATH", "HOME", "LANG", "USER", "TMPDIR", "PYTHONPATH", "KUBECONFIG", "K8S_AUTH_KUBECONFIG"})
_REPLACEMENT = "(hidden)"


class HiddenText(list[str], os.PathLike[str]):
    """The value of an environment variable: ``execve`` takes its text, JSON shows the list ``["hidden"]``."""

    def __init__(self, text: str) -> None:
        super().__init__(["hidden"])
        self._text = text

    def __fspath__(self) -> str:
        """Return the text; nothing else does."""
        return self._text


def hide_environment(environment: Mapping[str, str]) -> dict[str, str | HiddenText]:
    """Hide every variable that isn't known to be harmless: an operator's environment may contain passwords."""
    return {
        name: value if name in _SHOWN or name.startswith(_SHOWN_PREFIXES) else HiddenText(value)
        for name, value in environment.items()
    }


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text with a word in place of all secrets."""
    for secret in filter(None, secrets):
        text = text.replace(secret, _REPLACEMENT)
    return text


def redact_directory(directory: Path, secrets: Iterable[str]) -> None:
    """Replace secrets in the output of a run, and remove the partial events that a killed run leaves."""
    for partial in directory.glob("job_events/*-partial.json*"):
        partial.unlink(missing_ok=True)
    for path in (directory / "stdout", directory / "stderr"):
        content = clean = path.read_bytes() if path.exists() else b""
        for secret in filter(None, secrets):
            clean = clean.replace(secret.encode(), _REPLACEMENT.encode())
        if clean != content:
            path.write_bytes(clean)
