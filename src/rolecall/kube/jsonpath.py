"""JSONPaths into objects, with the extensions of ``jsonpath_ng`` (filters, arithmetic).

Parsing takes milliseconds, so parsed paths are cached for the life of the process.
"""

from functools import lru_cache
from typing import Any

from jsonpath_ng import JSONPath
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.ext import parse


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JSONPath:
    """Return the parsed path. Raise ValueError if the text is not a JSONPath."""
    try:
        return parse(text)
    except JSONPathError as error:
        raise ValueError(f"not a JSONPath: {text!r} ({error})") from error


def values_at(path: JSONPath, document: object) -> list[Any]:
    """Return the values that the path matches, in order."""
    try:
        return [match.value for match in path.find(document)]
    except (AttributeError, KeyError, TypeError, ValueError):
        # jsonpath_ng raises these if an operator meets a value of an unexpected type.
        return []
