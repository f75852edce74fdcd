"""Creates projects and adds kinds to them, in the layout of this repository."""

from rolecall.scaffold.errors import ScaffoldError
from rolecall.scaffold.project import NewKind, create_api, init_project
from rolecall.scaffold.project_files import ProjectFiles

__all__ = ["NewKind", "ProjectFiles", "ScaffoldError", "create_api", "init_project"]
