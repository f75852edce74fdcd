"""The variables that a role declares: the options of its main entry point in ``meta/argument_specs.yml``.

A watch with ``variables: declared`` passes only these from a spec. Extra vars override everything, the role's own
registers and facts included, so that a field of that name would otherwise change what the role does.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.mapping_reader import MappingReader
from rolecall.runner.config.watch_keys import VARIABLES
from rolecall.runner.config.yaml_loader import describe_error, first_document

_ENDINGS = (".yml", ".yaml", ".json")
_FILES = tuple(f"meta/{name}{ending}" for name in ("argument_specs", "main") for ending in _ENDINGS)
_KEY = "argument_specs"
DECLARED = "declared"


def read_declared(reader: MappingReader, contents: Iterable[Content | None]) -> dict[Content, frozenset[str]] | None:
    """Return the variables that each role of a watch declares, None if all fields of a spec become variables.

    What is wrong is added to the errors of ``reader``.
    """
    value = reader.read(VARIABLES)
    if value == VARIABLES.default:
        return None
    if value != DECLARED:
        reader.add_error(VARIABLES.name, f"expected {VARIABLES.default} or {DECLARED}, found {value!r}")
        return None
    found: dict[Content, frozenset[str]] = {}
    for content in contents:
        try:
            found |= {content: declared_variables(content)} if content else {}
        except ValueError as error:
            reader.add_error(VARIABLES.name, str(error))
    return found


def declared_variables(content: Content) -> frozenset[str]:
    """Return the names of the variables. Raises ValueError with what to do if the content declares none."""
    if not isinstance(content, RoleContent):
        raise ValueError(  # noqa: TRY004 - one error for all that is wrong with a watch
            f"declared needs a role with argument specs, found the playbook {content.path}: use a role, or all"
        )
    for name in _FILES:
        path = content.path / name
        specs = _read(path) if path.is_file() else None
        if specs is not None:
            return frozenset(str(option) for option in _options(specs, path))
    raise ValueError(
        f"declared needs the role's argument specs: declare its variables in {content.path / _FILES[0]}, below "
        "argument_specs.main.options, or use all"
    )


def _read(path: Path) -> Any:
    try:
        document = first_document(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {describe_error(error)[0]}") from error
    return document.get(_KEY) if isinstance(document, dict) else None


def _options(specs: Any, path: Path) -> dict[str, Any]:
    main = specs.get("main") if isinstance(specs, dict) else None
    if not isinstance(main, dict):
        raise ValueError(f"{path}: {_KEY} has no entry point main, which says what the role takes")  # noqa: TRY004
    options = main.get("options") or {}
    if not isinstance(options, dict):
        raise ValueError(f"{path}: {_KEY}.main.options: expected a mapping")  # noqa: TRY004 - as above
    return options
