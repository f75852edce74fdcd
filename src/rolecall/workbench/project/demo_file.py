"""Reads ``demo.yaml``: what the demo applies, and the goals of its objects.

For each kind the file lists what to show and what must be true in the end, as JSONPaths into the object. A goal
compares strings, so a label ``"3"`` equals a count 3.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonpath_ng import JSONPath

from rolecall.kube.jsonpath import parse_path, values_at
from rolecall.kube.references import GVK, RawObject


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition: the values at the path equal a literal, or the values at another path."""

    path: JSONPath
    equals: Any

    def holds(self, obj: RawObject) -> bool:
        """Return whether the condition is true for the object."""
        expected = values_at(self.equals, obj) if isinstance(self.equals, JSONPath) else [self.equals]
        found = values_at(self.path, obj)
        return bool(found) and [str(value) for value in found] == [str(value) for value in expected]


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of one kind: its conditions, and the columns that show the progress."""

    gvk: GVK
    columns: tuple[tuple[str, JSONPath], ...]
    until: tuple[Comparison, ...]

    def is_reached(self, obj: RawObject) -> bool:
        """Return whether the object has reached the goal."""
        return all(comparison.holds(obj) for comparison in self.until)

    def values(self, obj: RawObject) -> str:
        """Return the values of the columns, as ``name=value``."""
        found = ((name, values_at(path, obj)) for name, path in self.columns)
        return " ".join(f"{name}={values[0]}" for name, values in found if values)


@dataclass(frozen=True, slots=True)
class DemoFile:
    """The definitions to apply before the operator starts, the samples to apply afterwards, and the goals."""

    definitions: tuple[Path, ...]
    samples: tuple[Path, ...]
    goals: tuple[Goal, ...]


def read_demo_file(path: Path) -> DemoFile:
    """Read ``demo.yaml``; the paths in it are relative to the file.

    Raise ValueError with the name of the file if it is invalid.
    """
    try:
        document = yaml.safe_load(path.read_text())
        definitions = tuple(path.parent / name for name in document["definitions"])
        samples = tuple(path.parent / name for name in document["samples"])
        return DemoFile(definitions, samples, tuple(map(_read_goal, document["goals"] or ())))
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected definitions, samples and goals: {error!r}") from error


def _read_goal(raw: Any) -> Goal:
    columns = tuple((_name_of(text), parse_path(text)) for text in raw.get("columns") or ())
    until = tuple(Comparison(parse_path(item["path"]), _expected(item["equals"])) for item in raw["until"])
    return Goal(GVK.of(raw["apiVersion"], raw["kind"]), columns, until)


def _expected(value: Any) -> Any:
    return parse_path(value) if isinstance(value, str) and value.startswith("$") else value


def _name_of(path: str) -> str:
    return path.replace("['", ".").replace("']", "").rpartition(".")[2]
