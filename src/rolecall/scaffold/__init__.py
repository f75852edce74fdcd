"""Writes new projects, and new kinds into them, in the layout of this repository."""

from rolecall.scaffold.errors import ScaffoldError
from rolecall.scaffold.file_changes import Changes
from rolecall.scaffold.generate import NewKind, create_api, init_project

__all__ = ["Changes", "NewKind", "ScaffoldError", "create_api", "init_project"]
