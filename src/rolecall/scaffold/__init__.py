"""Writes new projects, and new kinds into them, in the layout of this repository.

Neighbours: ``project`` decides what is written, ``names`` checks what people chose, ``templates`` has the texts,
``yaml_lists`` adds to files that people have changed, and ``changes`` writes all of it or nothing.
"""

from rolecall.scaffold.errors import ScaffoldError
from rolecall.scaffold.file_changes import Changes
from rolecall.scaffold.generate import NewKind, create_api, init_project

__all__ = ["Changes", "NewKind", "ScaffoldError", "create_api", "init_project"]
