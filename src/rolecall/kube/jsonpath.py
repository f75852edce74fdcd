"""JSONPath into objects, with the extensions of ``jsonpath_ng`` (filters, arithmetic).

Parsing costs milliseconds, so each text is parsed once for the life of the process.
"""

from functools import lru_cache
from typing import Any

from jsonpath_ng import JSONPath
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.ext import parse


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JSONPath:
    """Return the compiled path. Raises ValueError that says what is wrong with the text."""
    try:
        return parse(text)
    except JSONPathError as error:
        raise ValueError(f"not a JSONPath: {text!r} ({error})") from error


def values_at(path: JSONPath, document: object) -> list[Any]:
    """Return every value that the path matches, in order; none when it matches nothing."""
    try:
        return [match.value for match in path.find(document)]
    except (AttributeError, KeyError, TypeError, ValueError):
        # jsonpath_ng raises these where an operator meets a value of a type that it does not expect.
        return []
