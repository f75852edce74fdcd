"""Settings of Ansible for which rolecall has a default of its own.

They become environment variables of the operator, which its runs and the fork server inherit alike. What the user has
set, in the environment or in an ansible.cfg that runs find, always wins or comes first.
"""

import configparser
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROLES_PATH, GATHERING = "ANSIBLE_ROLES_PATH", "ANSIBLE_GATHERING"
_SYSTEM_ROLES = ("/usr/share/ansible/roles", "/etc/ansible/roles")
_EXPANDED_BY_ANSIBLE = ("~", "$", "{")


@dataclass(frozen=True, slots=True)
class AnsibleConfig:
    """The section ``defaults`` of the ansible.cfg that runs read: its folder and its keys."""

    folder: Path = Path("/")
    defaults: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> "AnsibleConfig":
        """Return the first file that is there, as Ansible looks for it; nothing is set when there is none.

        An ansible.cfg in the working directory is not read: a run works in its workspace. One that cannot be parsed
        counts as empty, because the run itself reports it.
        """
        for path in _config_files(environment):
            if path.is_file() and os.access(path, os.R_OK):
                return cls(path.parent, _defaults_section(path))
        return cls()


def roles_path(directory: Path, environment: Mapping[str, str]) -> str:
    """Return where playbooks look for roles: where the user or Ansible says, then ``roles`` in the directory.

    Relative folders of ANSIBLE_ROLES_PATH lie in the directory, not in the workspace in which a run works.
    """
    config = AnsibleConfig.find(environment)
    if given := environment.get(ROLES_PATH):
        folders = _absolute(given, directory)
    elif given := config.defaults.get("roles_path"):
        folders = _absolute(given, config.folder)
    else:
        home = environment.get("ANSIBLE_HOME") or config.defaults.get("home") or "~/.ansible"
        folders = iter((f"{home}/roles", *_SYSTEM_ROLES))
    return os.pathsep.join(dict.fromkeys((*folders, str(directory / "roles"))))


def gathering(default: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that sets when facts are gathered; nothing without a default, or when the user has set it."""
    is_set = GATHERING in environment or "gathering" in AnsibleConfig.find(environment).defaults
    return {} if is_set or not default else {GATHERING: default}


def _config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("ANSIBLE_CONFIG"):
        path = Path(os.path.expanduser(named))  # noqa: PTH111 - a user who is not there is no error
        yield path / "ansible.cfg" if path.is_dir() else path
    yield Path(environment.get("HOME") or "/") / ".ansible.cfg"
    yield Path("/etc/ansible/ansible.cfg")


def _defaults_section(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    return dict(parser["defaults"]) if parser.has_section("defaults") else {}


def _absolute(folders: str, base: Path) -> Iterator[str]:
    for folder in filter(None, folders.split(os.pathsep)):
        yield folder if folder.startswith(_EXPANDED_BY_ANSIBLE) else str(base / folder)
