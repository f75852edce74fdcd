"""The reader of ``watches.yaml`` matches the declarations of the keys."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.runner.config import watch_keys as keys
from rolecall.runner.config.watch_keys import BOOLEAN, DURATION, INTEGER, LIST, MAPPING, PATH, TEXT, Key, Type
from rolecall.runner.config.watches import ParsedWatches, parse_watches

SAMPLES: Mapping[str, Any] = {
    TEXT.name: "thing",
    BOOLEAN.name: True,
    INTEGER.name: 3,
    DURATION.name: "5s",
    PATH.name: "$.spec",
    MAPPING.name: {"a": "$.stats.b"},
}
VALUES: Mapping[Key[Any], Any] = {
    keys.PLAYBOOK: "thing.yml",
    keys.EXPRESSION_OPERATOR: "In",
    keys.VALUES: ["a"],
    keys.FIELDS: ["$.spec"],
    keys.MATCH_LABELS: {"a": "b"},
    keys.ALLOW_VARIABLES: ["ansible_user"],
    keys.VARIABLES: "all",
    keys.SENSITIVE: ["$.spec.password"],
}
ONE_OF = (keys.OWNER, keys.LABELS, keys.NAME)
"""A trigger has exactly one of these."""


def sample(key: Key[Any], *omitted: str) -> Any:
    """Return a value for a key, without the omitted keys below it."""
    if key in VALUES:
        return VALUES[key]
    if not key.keys:
        return SAMPLES[key.type.name]
    if key is keys.TRIGGERS:
        common = [below for below in key.keys if below not in ONE_OF]
        return [mapping((*common, reference), *omitted) for reference in ONE_OF]
    below = mapping(key.keys, *omitted)
    return [below] if key.type is LIST else below


def mapping(declared: tuple[Key[Any], ...], *omitted: str) -> dict[str, Any]:
    """Return a mapping with a value for each key except the omitted paths, such as ``finalizer.name``."""
    found = {}
    for key in declared:
        below = [path.removeprefix(f"{key.name}.") for path in omitted if path.startswith(f"{key.name}.")]
        if key.name not in omitted:
            found[key.name] = sample(key, *below)
    return found


def paths(declared: tuple[Key[Any], ...], prefix: str = "") -> Iterator[tuple[str, Key[Any]]]:
    """Yield every key at every depth with its path."""
    for key in declared:
        yield prefix + key.name, key
        yield from paths(key.keys, f"{prefix}{key.name}.")


ALONE = [(path, key) for path, key in paths(keys.ENTRY) if key not in (*ONE_OF, keys.VALUES)]
"""The keys that are required or not regardless of others."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a project with the role ``thing`` and a playbook of that name."""
    (tmp_path / "roles" / "thing").mkdir(parents=True)
    (tmp_path / "thing.yml").write_text("[]\n")
    return tmp_path


def read(directory: Path, *omitted: str) -> ParsedWatches:
    """Read a file with every key except the omitted ones."""
    file = directory / "watches.yaml"
    file.write_text(yaml.safe_dump([mapping(keys.ENTRY, *omitted)]))
    return parse_watches(file, {}, directory)


def test_every_declared_key_is_read(directory: Path) -> None:
    reading = read(directory)
    assert [str(error) for error in reading.errors] == []
    assert [str(key) for key in reading.unknown_keys] == []


@pytest.mark.parametrize(("path", "key"), [pytest.param(path, key, id=path) for path, key in ALONE])
def test_key_is_required_if_and_only_if_declared_so(path: str, key: Key[Any], directory: Path) -> None:
    errors = read(directory, path).errors
    assert bool(errors) == key.is_required, [str(error) for error in errors]


def test_every_key_has_a_help_text() -> None:
    assert [path for path, key in paths(keys.ENTRY) if not key.help] == []


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        *(
            (TEXT, value, text)
            for value, text in ((1, "1"), (1.5, "1.5"), (True, "true"), (False, "false"), ("x", "x"))
        ),
        *((BOOLEAN, text, True) for text in ("y", "Yes", "TRUE", "on")),
        (MAPPING, {"Key": 1, 2: "b"}, {"Key": 1, "2": "b"}),
        (DURATION, "1m30s", 90),
    ],
)
def test_value_is_converted(type_: Type[Any], value: object, expected: object) -> None:
    assert type_.read(value) == expected
