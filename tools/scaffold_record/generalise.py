"""Turns the record of one project into a template: its names become placeholders of the scaffold."""

import json
import re
from pathlib import Path
from typing import Final

from rolecall.runner.record.reader import StoredRecord, read_record, to_line
from rolecall.workbench.project.scaffold import NewKind

DOMAIN: Final = "domain-of-zyx"
KIND: Final = NewKind("group-of-zyx", "v9beta9", "Zyxkind", plural="zyxkinds", with_role=True)
"""Unique names, which occur nowhere else in the record."""

MARKS: Final = (
    (f"{KIND.group}.{DOMAIN}", "group"),
    (KIND.version, "version"),
    (KIND.kind, "kind"),
    (str(KIND.plural), "plural"),
    (KIND.kind.lower(), "name"),
)
_WORKSPACE: Final = re.compile(r"/[^\s\"]*/rolecall-work-\w+/")
"""The directory for the files of runs, whose name differs in each run."""

_OF_THE_ROLE: Final = "content"
"""A digest of the role's files, which differs with other names."""


def template_of(path: Path, project: Path) -> str:
    """Return the template for the record of a project, without the digest: each new project computes its own."""
    record = read_record(path)
    text = "".join(f"{to_line(line)}\n" for line in _lines(record))
    text = _WORKSPACE.sub("", text.replace("%", "%%").replace(f"{project}/", ""))
    for word, mark in MARKS:
        text = text.replace(word, f"%{{{mark}}}")
    return text


def _lines(record: StoredRecord) -> list[dict[str, object]]:
    head = {name: value for name, value in record.head.items() if name != _OF_THE_ROLE}
    lines = [head, *record.exchanges, *record.tasks, record.end]
    return [json.loads(json.dumps(line)) for line in lines]
