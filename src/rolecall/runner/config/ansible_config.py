"""The settings of Ansible as runs find them: in the environment, or in an ansible.cfg.

The user's settings take precedence or come first. Directories of Ansible become variables of localhost, because they
must not reach other hosts.

A file of the user that can't be read, or whose directory can't be searched, counts as missing, as for Ansible. So these
files are tested with os.path here and elsewhere: the tests of pathlib raise PermissionError.

The fork server and the processes of runs import this module, so it imports neither ansible-core nor the log.
"""

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROLES_PATH = "ANSIBLE_ROLES_PATH"
_DIRECTORY_VARIABLES = {
    "remote_tmp": ("ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"),
    "async_dir": ("ANSIBLE_ASYNC_DIR",),
}
_DECISIVE = ("ANSIBLE_ALLOW_BROKEN_CONDITIONALS", "ANSIBLE_GATHERING")
_EXPANDED_BY_ANSIBLE = ("~", "$", "{")
_SYNTAX = re.compile(r"""[:,;&|<>()\[\]{}*?!#$^`'"\\]|[^\S ]|  """)


@dataclass(frozen=True, slots=True)
class AnsibleConfig:
    """The section ``defaults`` of the ansible.cfg that runs read: its directory and its keys."""

    directory: Path = Path("/")
    defaults: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> "AnsibleConfig":
        """Return the first ansible.cfg in Ansible's search order, or an empty one.

        An ansible.cfg in the working directory is not read, because the working directory of a run is its workspace. A
        file that cannot be parsed counts as empty, because the run itself reports it.
        """
        named = Path(expanded(environment.get("ANSIBLE_CONFIG", "")))
        is_directory = os.path.isdir(named)  # noqa: PTH112 - pathlib raises PermissionError
        given = (named / "ansible.cfg" if is_directory else named,) if environment.get("ANSIBLE_CONFIG") else ()
        usual = (Path(environment.get("HOME") or "/") / ".ansible.cfg", Path("/etc/ansible/ansible.cfg"))
        readable = (each for each in (*given, *usual) if os.access(each, os.R_OK))
        path = next((each for each in readable if os.path.isfile(each)), None)  # noqa: PTH113 - pathlib raises PermissionError
        if path is None:
            return cls()
        parser = configparser.ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            return cls(path.parent)
        return cls(path.parent, dict(parser["defaults"]) if parser.has_section("defaults") else {})


def roles_path(directory: Path, environment: Mapping[str, str]) -> str:
    """Return the search path of roles: the configured or default one, then ``roles`` in the directory.

    Relative paths in ANSIBLE_ROLES_PATH are relative to the directory, not to the workspace of a run.
    """
    default = ("roles", "/usr/share/ansible/roles", "/etc/ansible/roles")
    found = _paths(ROLES_PATH, "roles_path", directory, default, environment)
    return os.pathsep.join(dict.fromkeys((*found, str(directory / "roles"))))


def decisive_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide whether a role works, and that projects set outside their files.

    A replay needs them: ``ansible-operator`` and ``rolecall`` have different defaults.
    """
    return {name: environment[name] for name in _DECISIVE if name in environment}


def collection_directories(environment: Mapping[str, str]) -> list[str]:
    """Return the directories where Ansible looks for collections, before those on Python's path."""
    default = ("collections", "/usr/share/ansible/collections")
    found = _paths("ANSIBLE_COLLECTIONS_PATH", "collections_path", Path(), default, environment)
    return [expanded(each).removesuffix("/ansible_collections") for each in found]


def expanded(path: str) -> str:
    """Return a path with ``~`` and variables replaced. Unlike for pathlib, a user without a known home is no error."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111


def directory_variables(environment: Mapping[str, str], remote_tmp: Path, async_dir: Path) -> dict[str, str]:
    """Return the variables that make localhost keep Ansible's files in these directories, unless others are configured.

    Ansible's own default is below HOME, which may not be writable, and where nothing removes the files of killed tasks.
    """
    defaults = AnsibleConfig.find(environment).defaults
    return {
        f"ansible_{key}": str(directory)
        for key, directory in {"remote_tmp": remote_tmp, "async_dir": async_dir}.items()
        if key not in defaults and not any(environment.get(name) for name in _DIRECTORY_VARIABLES[key])
    }


def _paths(
    variable: str, key: str, directory: Path, default: tuple[str, ...], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield the directories in a variable, else below a key of ansible.cfg, else the default below Ansible's home."""
    config = AnsibleConfig.find(environment)
    given, base = environment.get(variable, ""), directory
    if not given:
        given, base = config.defaults.get(key, ""), config.directory
    if not given:
        home = environment.get("ANSIBLE_HOME") or config.defaults.get("home") or "~/.ansible"
        yield f"{home}/{default[0]}"
        yield from default[1:]
    for each in filter(None, given.split(os.pathsep)):
        yield each if each.startswith(_EXPANDED_BY_ANSIBLE) else str(base / each)


def check_path(path: Path) -> None:
    """Raise ValueError if runs can't have files below a path: Ansible quotes it neither in lists nor in shell lines."""
    if found := _SYNTAX.search(str(path)):
        raise ValueError(
            f"the path {str(path)!r} has {found[0]!r}, which acts as syntax where Ansible puts paths into lists, "
            "templates, and shell commands: choose another directory"
        )


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (5, 3, 0) of "5.3.0-beta.1": three at most, none if unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
