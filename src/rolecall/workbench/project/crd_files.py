"""CRDs in YAML files, edited in place: comments, the order of keys, and the style of everything else stay.

A file whose content doesn't change keeps every byte. ruamel.yaml is imported here only, so that operators, which have
no workbench, don't need it.
"""

import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, FoldedScalarString

from rolecall.kube.references import GVK
from rolecall.runner.config.watches import Watch
from rolecall.workbench.project.argument_specs import RoleArguments
from rolecall.workbench.project.crd_schema import Schema, SchemaSync
from rolecall.workbench.yaml_files import below, listed

_FOLDED_WIDTH = 100
_SHORT = 80
"""A longer description takes several lines."""


class CrdError(Exception):
    """A file or a CRD that can't be used; the message is one line with the file and the solution."""


@dataclass(frozen=True, slots=True)
class CrdFile:
    """A YAML file with its documents, which can be changed and rendered."""

    path: Path
    text: str
    documents: list[Any]

    @classmethod
    def read(cls, path: Path) -> "CrdFile":
        """Read a file. Raise CrdError."""
        try:
            return cls.parse(path, path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CrdError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise CrdError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, path: Path, text: str) -> "CrdFile":
        """Return the file with this text. Raise CrdError."""
        try:
            return cls(path, text, list(_parser(text).load_all(text)))
        except (YAMLError, ValueError) as error:
            raise CrdError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from error

    def definition(self, gvk: GVK) -> Schema | None:
        """Return the definition of a kind, whichever its versions."""
        for each in self.documents:
            if isinstance(each, dict) and each.get("kind") == "CustomResourceDefinition":
                names = below(each, "spec").get("group"), below(each, "spec", "names").get("kind")
                if names == (gvk.group, gvk.kind):
                    return each
        return None

    def render(self) -> str:
        """Return the text with the changes of the documents."""
        rendered = io.StringIO()
        parser = _parser(self.text)
        before = parser.load_all(self.text)
        parser.dump_all([_styled(each, old) for each, old in zip(self.documents, before, strict=True)], rendered)
        return rendered.getvalue()

    def sync(self, watch: Watch, arguments: RoleArguments) -> SchemaSync:
        """Change the definition of a watch's kind to match the arguments, and return what was found.

        Raise CrdError or ArgumentSpecError.
        """
        allowed, kind = watch.allow_variables, watch.gvk.kind
        sync = SchemaSync(watch.snake_case_parameters, arguments.given, allowed, self.path, kind)
        sync.apply(self._schema(watch.gvk), arguments.entry)
        return sync

    def _schema(self, gvk: GVK) -> Schema:
        versions = listed(self.definition(gvk), "spec", "versions")
        named = {each.get("name"): each for each in versions if isinstance(each, dict)}
        version = named.get(gvk.version)
        if version is None or version.get("served") is False:
            names = ", ".join(str(name) for name, each in named.items() if each.get("served") is not False) or "none"
            raise CrdError(
                f"{self.path}: {gvk.kind} has no served version {gvk.version!r}, as in watches.yaml; served: {names}"
            )
        schema = below(version, "schema").get("openAPIV3Schema")
        if not isinstance(schema, dict):
            raise CrdError(f"{self.path}: version {gvk.version} of {gvk.kind} has no schema.openAPIV3Schema: add one")
        return schema


def _parser(text: str) -> YAML:
    """Return a parser and writer with the style of a text: its indentation of lists, and its first line."""
    parser = YAML()
    parser.preserve_quotes = True
    parser.width = 4096
    first_list = re.search(r"^( *)[^\s#-].*:\n(?:\s*#.*\n)*( *)- ", text, re.MULTILINE)
    offset = max(0, len(first_list[2]) - len(first_list[1])) if first_list else 2
    parser.indent(mapping=2, sequence=offset + 2, offset=offset)
    parser.explicit_start = text.startswith("---")
    return parser


def _styled(value: Any, before: Any, key: str = "") -> Any:
    """Return a value whose new parts have a style: quotes where YAML 1.1 needs them, and long descriptions folded."""
    if value == before:
        return value
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        styled = value if isinstance(value, CommentedMap) else CommentedMap(value)
        for name, each in value.items():
            styled[name] = _styled(each, old.get(name), name)
        return styled
    if isinstance(value, list):
        olds = before if isinstance(before, list) else []
        value[:] = [_styled(each, olds[index] if index < len(olds) else None) for index, each in enumerate(value)]
    elif key == "description" and len(value) > _SHORT:
        return _folded(value)
    # Kubernetes reads YAML 1.1, in which yes and on are booleans. A subtype of str has a style already.
    is_plain = type(value) is str
    if is_plain and (yaml.safe_dump(value).startswith(("'", '"')) or value.lower() in ("y", "n")):
        return DoubleQuotedScalarString(value)
    return value


def _folded(text: str) -> Any:
    folded: Any = FoldedScalarString(text)
    position, positions = -1, []
    for line in textwrap.wrap(text, _FOLDED_WIDTH, break_long_words=False, break_on_hyphens=False)[:-1]:
        position += len(line) + 1
        positions.append(position)
    folded.fold_pos = positions
    return folded
