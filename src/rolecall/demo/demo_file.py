"""What a demo applies and when it is done: ``demo.yaml``.

For each kind the file names what to show and what must hold in the end, as JSONPaths into the object. A goal compares
texts, so a label ``"3"`` and a count 3 are equal. Pure, but for reading the file.
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
    """One thing that must hold: what the path finds equals a literal, or what another path finds."""

    path: JSONPath
    equals: Any

    def holds(self, obj: RawObject) -> bool:
        """Tell whether it holds for the object as it is."""
        expected = values_at(self.equals, obj) if isinstance(self.equals, JSONPath) else [self.equals]
        found = values_at(self.path, obj)
        return bool(found) and [str(value) for value in found] == [str(value) for value in expected]


@dataclass(frozen=True, slots=True)
class Goal:
    """The end state of one kind, and the fields that show the way there."""

    gvk: GVK
    columns: tuple[tuple[str, JSONPath], ...]
    until: tuple[Comparison, ...]

    def is_reached(self, obj: RawObject) -> bool:
        """Tell whether the object is where it should be."""
        return all(comparison.holds(obj) for comparison in self.until)

    def fields(self, obj: RawObject) -> str:
        """Return the fields to show, as ``name=value``."""
        found = ((name, values_at(path, obj)) for name, path in self.columns)
        return " ".join(f"{name}={values[0]}" for name, values in found if values)


@dataclass(frozen=True, slots=True)
class DemoFile:
    """What a demo applies before the operator starts and afterwards, and the end states that it waits for."""

    definitions: tuple[Path, ...]
    samples: tuple[Path, ...]
    goals: tuple[Goal, ...]


def read_demo_file(path: Path) -> DemoFile:
    """Read ``demo.yaml``; its paths are relative to it.

    Raises ValueError that names the file for anything that is not as described above.
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
