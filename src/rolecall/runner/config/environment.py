"""The environment variables that configure the operator, except those of Ansible."""

import re
from collections.abc import Mapping

from rolecall.kube.references import GVK
from rolecall.system.logs import get_logger

logger = get_logger("cmd")

HIGHEST_VERBOSITY = 7
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_boolean(text: str) -> bool:
    """Return the boolean for one of Go's spellings. Raise ValueError."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {text!r}")
    return _BOOLEANS[text]


def watch_namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces in WATCH_NAMESPACE, which are separated by commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def ansible_debug_logs(environment: Mapping[str, str]) -> bool:
    """Return whether ANSIBLE_DEBUG_LOGS enables the whole output of runs; log an invalid boolean."""
    text = environment.get("ANSIBLE_DEBUG_LOGS")
    if text is None:
        return False
    try:
        return parse_boolean(text)
    except ValueError as error:
        logger.info("Invalid environment variable; ignoring it", envVar="ANSIBLE_DEBUG_LOGS", error=str(error))
        return False


def output_verbosity(environment: Mapping[str, str]) -> int:
    """Return the number in ANSIBLE_VERBOSITY, or 0."""
    return parse_integer(environment.get("ANSIBLE_VERBOSITY", "")) or 0


def leader_election_id(environment: Mapping[str, str]) -> str:
    """Return the name of the Lease from the deprecated variable OPERATOR_NAME, or an empty string."""
    name = environment.get("OPERATOR_NAME", "")
    if "OPERATOR_NAME" in environment:
        flag = "--leader-election-id"
        logger.warning("Deprecated environment variable", envVar="OPERATOR_NAME", replacedBy=flag)
    return name


def max_concurrent_reconciles(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the maximum number of concurrent reconciles of a kind, None if the flag decides.

    WORKER_<KIND>_<GROUP> is the old name of MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> and is used only if that is unset.
    """
    name, old_name = (_per_kind(prefix, gvk) for prefix in ("MAX_CONCURRENT_RECONCILES", "WORKER"))
    if name not in environment and old_name in environment:
        logger.warning("Deprecated environment variable", envVar=old_name, replacedBy=name)
        name = old_name
    return _number(name, environment, at_least=1)


def ansible_verbosity(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the number of -v options in ANSIBLE_VERBOSITY_<KIND>_<GROUP>, None if the flag decides."""
    return _number(_per_kind("ANSIBLE_VERBOSITY", gvk), environment, at_least=0, at_most=HIGHEST_VERBOSITY)


def parse_integer(text: str) -> int | None:
    """Return the text as an integer, None if it is not one."""
    return int(text) if _INTEGER.fullmatch(text) else None


def _per_kind(prefix: str, gvk: GVK) -> str:
    return f"{prefix}_{gvk.kind}_{gvk.group}".upper().replace(".", "_")


def _number(name: str, environment: Mapping[str, str], at_least: int, at_most: int | None = None) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    number = parse_integer(text)
    if number is None or number < at_least or (at_most is not None and number > at_most):
        upper = "" if at_most is None else f" and at most {at_most}"
        expected = f"an integer, at least {at_least}{upper}"
        logger.info("Invalid environment variable; using the flag's value", envVar=name, value=text, expected=expected)
        return None
    return number
