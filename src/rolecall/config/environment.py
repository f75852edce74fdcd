"""What the operator reads from its environment, apart from flags and from the search for roles."""

import re
from collections.abc import Mapping

from rolecall.kube.references import GVK
from rolecall.logs import get_logger

logger = get_logger("cmd")

HIGHEST_VERBOSITY = 7
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_boolean(text: str) -> bool:
    """Return the boolean of one of the spellings that Go knows. Raises ValueError."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {text!r}")
    return _BOOLEANS[text]


def watch_namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces of WATCH_NAMESPACE: a list with commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def ansible_debug_logs(environment: Mapping[str, str]) -> bool:
    """Tell whether ANSIBLE_DEBUG_LOGS asks for everything that a run has printed; what is no boolean is told of."""
    text = environment.get("ANSIBLE_DEBUG_LOGS")
    if text is None:
        return False
    try:
        return parse_boolean(text)
    except ValueError as error:
        logger.info("An environment variable is left out", variable="ANSIBLE_DEBUG_LOGS", reason=str(error))
        return False


def output_verbosity(environment: Mapping[str, str]) -> int:
    """Return the number in ANSIBLE_VERBOSITY, 0 when there is none."""
    return parse_integer(environment.get("ANSIBLE_VERBOSITY", "")) or 0


def leader_election_id(environment: Mapping[str, str]) -> str:
    """Return the name of the Lease that the deprecated OPERATOR_NAME gives, for those who give no flag."""
    name = environment.get("OPERATOR_NAME", "")
    if "OPERATOR_NAME" in environment:
        better = "--leader-election-id"
        logger.warning("An environment variable has been deprecated", envVar="OPERATOR_NAME", instead=better)
    return name


def max_concurrent_reconciles(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return how many objects of a kind are reconciled at once, None where the flag decides.

    WORKER_<KIND>_<GROUP> is the old name of MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> and is read only without it.
    """
    name, old_name = (_per_kind(prefix, gvk) for prefix in ("MAX_CONCURRENT_RECONCILES", "WORKER"))
    if name not in environment and old_name in environment:
        logger.warning("An environment variable has been deprecated", envVar=old_name, instead=name)
        name = old_name
    return _number(name, environment, at_least=1)


def ansible_verbosity(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return how many -v the runs of a kind get by ANSIBLE_VERBOSITY_<KIND>_<GROUP>, None where the flag decides."""
    return _number(_per_kind("ANSIBLE_VERBOSITY", gvk), environment, at_least=0, at_most=HIGHEST_VERBOSITY)


def parse_integer(text: str) -> int | None:
    """Return the whole number that a text is, None when it is none."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _per_kind(prefix: str, gvk: GVK) -> str:
    return f"{prefix}_{gvk.kind}_{gvk.group}".upper().replace(".", "_")


def _number(name: str, environment: Mapping[str, str], at_least: int, at_most: int | None = None) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    number = parse_integer(text)
    if number is None or number < at_least or (at_most is not None and number > at_most):
        wanted = f"a whole number from {at_least} on" if at_most is None else f"one from {at_least} to {at_most}"
        logger.info("Invalid environment variable; using the flag's value", envVar=name, value=text, expected=wanted)
        return None
    return number
