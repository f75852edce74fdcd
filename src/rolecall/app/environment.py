"""What the operator reads from its environment, apart from flags and from the search for roles."""

from collections.abc import Mapping

from rolecall.logs import get_logger

logger = get_logger("cmd")

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_boolean(text: str) -> bool:
    """Return the boolean of one of the spellings that Go knows. Raises ValueError."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {text!r}")
    return _BOOLEANS[text]


def namespaces_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces of WATCH_NAMESPACE: a list with commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def debug_logs(environment: Mapping[str, str]) -> bool:
    """Tell whether ANSIBLE_DEBUG_LOGS asks for everything that a run has printed; what is no boolean is told of."""
    text = environment.get("ANSIBLE_DEBUG_LOGS")
    if text is None:
        return False
    try:
        return parse_boolean(text)
    except ValueError as error:
        logger.info("An environment variable is left out", variable="ANSIBLE_DEBUG_LOGS", reason=str(error))
        return False
