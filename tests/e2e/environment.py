"""The cluster of the tests: a real one, which the environment names, and the command that loads images."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

NEEDED = {
    "KUBECONFIG": "a kubeconfig of an administrator",
    "LOAD": "a command that loads the images named after it into the cluster",
    "RUN_IN": "the words before a command that let it reach the API server (may be 'env')",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """The values of the variables, commands as lists of words."""

    kubeconfig: str
    load: tuple[str, ...]
    run_in: tuple[str, ...]


def environment_of(variables: Mapping[str, str]) -> Environment:
    """Read the variables. Raises ValueError, in one line, with all that are missing."""
    missing = [f"{name}: {what}" for name, what in NEEDED.items() if not variables.get(name)]
    if missing:
        raise ValueError(f"the end-to-end tests need a real cluster; set {'; '.join(missing)}")
    load, run_in = (tuple(shlex.split(variables[name])) for name in ("LOAD", "RUN_IN"))
    return Environment(variables["KUBECONFIG"], load, run_in)
