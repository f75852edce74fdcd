"""Settings of Ansible for which rolecall has its own default.

Your settings, in the environment or in an ansible.cfg that runs find, take precedence or come first. The roles path,
the gathering of facts, and whether conditions must be boolean become environment variables of the operator, which its
runs and the fork server inherit. Directories below HOME become variables of localhost, because they must not reach
other hosts.
"""

import configparser
import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROLES_PATH = "ANSIBLE_ROLES_PATH"
_SYSTEM_ROLES = ("/usr/share/ansible/roles", "/etc/ansible/roles")
_FOLDER_VARIABLES = {
    "remote_tmp": ("ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"),
    "async_dir": ("ANSIBLE_ASYNC_DIR",),
}
_USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Where Python's ``getpass``, and so Ansible's local connection, looks for the user name before the passwd file."""

_DECISIVE = ("ANSIBLE_ALLOW_BROKEN_CONDITIONALS", "ANSIBLE_GATHERING")
_EXPANDED_BY_ANSIBLE = ("~", "$", "{")


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
        for path in _config_files(environment):
            if path.is_file() and os.access(path, os.R_OK):
                return cls(path.parent, _defaults_section(path))
        return cls()


def roles_path(directory: Path, environment: Mapping[str, str]) -> str:
    """Return the search path of roles: the configured or default one, then ``roles`` in the directory.

    Relative paths in ANSIBLE_ROLES_PATH are relative to the directory, not to the workspace of a run.
    """
    config = AnsibleConfig.find(environment)
    if given := environment.get(ROLES_PATH):
        folders = _absolute(given, directory)
    elif given := config.defaults.get("roles_path"):
        folders = _absolute(given, config.directory)
    else:
        folders = iter((f"{_ansible_home(environment, config)}/roles", *_SYSTEM_ROLES))
    return os.pathsep.join(dict.fromkeys((*folders, str(directory / "roles"))))


def unless_configured(key: str, default: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable for a key of ansible.cfg; empty without a default or if the key is configured."""
    variable = f"ANSIBLE_{key.upper()}"
    is_set = variable in environment or key in AnsibleConfig.find(environment).defaults
    return {} if is_set or not default else {variable: default}


def decisive_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an operator that decide whether a role works and that projects set outside their files.

    A replay needs them: ``ansible-operator`` has other defaults for them than ``rolecall``.
    """
    return {name: environment[name] for name in _DECISIVE if name in environment}


def collection_directories(environment: Mapping[str, str]) -> list[str]:
    """Return the directories where Ansible looks for collections, before those on Python's path."""
    config = AnsibleConfig.find(environment)
    if given := environment.get("ANSIBLE_COLLECTIONS_PATH"):
        folders = _absolute(given, Path())
    elif given := config.defaults.get("collections_path"):
        folders = _absolute(given, config.directory)
    else:
        folders = iter((f"{_ansible_home(environment, config)}/collections", "/usr/share/ansible/collections"))
    # A user whose home is unknown is no error.
    return [os.path.expandvars(os.path.expanduser(folder)).removesuffix("/ansible_collections") for folder in folders]  # noqa: PTH111


def home_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make localhost keep Ansible's files below HOME; empty if it already does.

    Ansible expands ``~`` with the passwd file in some places and with HOME in others. If these differ, as for random
    users of OpenShift, it would look for an asynchronous task in another directory than the one in which it runs.
    """
    home = environment.get("HOME", "")
    if not home or home == _home_by_name(environment):
        return {}
    defaults = AnsibleConfig.find(environment).defaults
    folders = {"remote_tmp": ".ansible/tmp", "async_dir": ".ansible_async"}
    return {
        f"ansible_{key}": f"{home}/{folder}"
        for key, folder in folders.items()
        if key not in defaults and not any(environment.get(name) for name in _FOLDER_VARIABLES[key])
    }


def _ansible_home(environment: Mapping[str, str], config: AnsibleConfig) -> str:
    return environment.get("ANSIBLE_HOME") or config.defaults.get("home") or "~/.ansible"


def _home_by_name(environment: Mapping[str, str]) -> str:
    """Return the expansion of ``~NAME`` for the user name that Ansible determines, or HOME."""
    name = next((environment[variable] for variable in _USER_VARIABLES if environment.get(variable)), "")
    try:
        return (pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())).pw_dir
    except KeyError:
        return f"~{name}" if name else environment.get("HOME", "")


def _config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("ANSIBLE_CONFIG"):
        path = Path(os.path.expanduser(named))  # noqa: PTH111 - an unknown user is no error
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
