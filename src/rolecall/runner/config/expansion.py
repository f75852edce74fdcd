"""Expands environment variables in the text of ``watches.yaml`` before it is parsed.

The rules are those of Go's ``os.Expand`` as the Go runner uses it (since 1.34): ``$NAME`` and ``${NAME}`` are replaced
everywhere, comments included; an unset variable is left as ``${NAME}``. Malformed references behave as in Go, so that a
file means the same for both runners.
"""

import re
from collections.abc import Mapping

# In this order: ${…}, an unterminated ${, $NAME, one of the shell's special one-character names.
_REFERENCE = re.compile(r"\$(?:\{([^}]*)\}|(\{)|([A-Za-z_][A-Za-z0-9_]*)|([*#$@!?\-0-9]))")


def expand_variables(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with every reference replaced by its value, or by ``${NAME}`` if the variable is unset."""

    def value_of(match: re.Match[str]) -> str:
        braced, unterminated, plain, special = match.groups()
        name = braced or plain or special
        if unterminated or not name:
            return ""
        return environment.get(name, f"${{{name}}}")

    return _REFERENCE.sub(value_of, text)
