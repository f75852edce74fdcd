"""The responses of simulated pods to exec, attach, and logs.

No container runs, so a command has no real output. A user states it in ConfigMaps with the label
``rolecall.dev/pod-responses`` in the pods' namespace: each key holds a YAML list of responses, and the first response
whose conditions all hold is used. Without a matching response a command succeeds without output, as the pods of a Job
succeed, and a log is empty. Everything here is pure; ``rolecall.workbench.controlplane.kubelet`` serves it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import yaml

LABEL = "rolecall.dev/pod-responses"
MAX_EXIT_CODE = 255


class InvalidResponseError(Exception):
    """A ConfigMap with responses is invalid; the message names the ConfigMap, the key, the item, and the problem."""


@dataclass(frozen=True)
class Target:
    """A container of a pod, and the command to execute in it (None for logs and attach)."""

    pod: str
    container: str
    command: Sequence[str] | None = None


@dataclass(frozen=True)
class Response:
    """A response and its conditions.

    ``pod`` and ``container`` are regular expressions for the whole name, ``command`` is one to search for in the
    command and its arguments, joined by spaces. An empty condition always holds.
    """

    pod: str = ""
    container: str = ""
    command: str = ""
    stdout: str = ""
    stderr: str = ""
    exitCode: int = 0  # noqa: N815 - the key in the ConfigMap, in the style of the Kubernetes API
    log: str | None = None

    def matches(self, target: Target) -> bool:
        """Return whether this is a response for the target: one with ``log`` is for logs and attach only."""
        if (self.log is None) != (target.command is not None):
            return False
        names = ((self.pod, target.pod), (self.container, target.container))
        return all(not pattern or re.fullmatch(pattern, name) for pattern, name in names) and bool(
            re.search(self.command, " ".join(target.command or ()))
        )


_TYPES: Mapping[str, type] = {field.name: int if field.name == "exitCode" else str for field in fields(Response)}
_PATTERNS = ("pod", "container", "command")


def find_response(config_maps: Iterable[Mapping[str, Any]], target: Target) -> Response:
    """Return the first matching response in ConfigMaps of the target's namespace, ordered by name and key.

    Raises InvalidResponseError if any response is invalid, even if another one matches.
    """
    responses = [response for config_map in sorted(config_maps, key=_name) for response in _responses(config_map)]
    return next((response for response in responses if response.matches(target)), Response())


def _name(config_map: Mapping[str, Any]) -> str:
    return str(config_map["metadata"]["name"])


def _responses(config_map: Mapping[str, Any]) -> Iterator[Response]:
    for key, text in sorted((config_map.get("data") or {}).items()):
        place = f"ConfigMap {_name(config_map)!r}, key {key!r}"
        try:
            items = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InvalidResponseError(f"{place}: expected YAML: {' '.join(str(error).split())}") from error
        if not isinstance(items, list):
            raise InvalidResponseError(f"{place}: expected a list of responses, found {items!r}")
        for number, item in enumerate(items, 1):
            yield _response(item, f"{place}, item {number}")


def _response(item: Any, place: str) -> Response:
    if not isinstance(item, dict) or not item:
        raise InvalidResponseError(f"{place}: expected a response with any of {', '.join(_TYPES)}, found {item!r}")
    for key, value in item.items():
        if key not in _TYPES:
            raise InvalidResponseError(f"{place}: unknown key {key!r}; the keys are {', '.join(_TYPES)}")
        if type(value) is not _TYPES[key]:
            raise InvalidResponseError(f"{place}: {key}: expected {_TYPES[key].__name__}, found {value!r}")
    if not 0 <= item.get("exitCode", 0) <= MAX_EXIT_CODE:
        raise InvalidResponseError(f"{place}: exitCode: expected 0 to {MAX_EXIT_CODE}, found {item['exitCode']}")
    if "log" in item and not {"command", "stdout", "stderr", "exitCode"}.isdisjoint(item):
        raise InvalidResponseError(f"{place}: expected either log or a command's response, found {', '.join(item)}")
    for key in _PATTERNS:
        try:
            re.compile(item.get(key, ""))
        except re.error as error:
            raise InvalidResponseError(f"{place}: {key}: expected a regular expression: {error}") from error
    return Response(**item)
