"""The environment variables that configure the operator, except those for the search for roles.

Settings of Ansible for which rolecall has its own default.

Your settings, in the environment or in an ansible.cfg that runs find, take precedence or come first. The roles path,
the gathering of facts, and whether conditions must be boolean become environment variables of the operator, which its
runs and the fork server inherit. Directories below HOME become variables of localhost, because they must not reach
other hosts.

The ansible-core that runs need: checked before anything starts, without importing it.
"""

import configparser
import os
import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rolecall.kube.references import GVK
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.logs import get_logger

logger = get_logger("cmd")

HIGHEST_VERBOSITY = 7
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_boolean(text: str) -> bool:
    """Return the boolean for one of Go's spellings. Raise ValueError."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {text!r}")
    return _BOOLEANS[text]


def watch_namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces in WATCH_NAMESPACE, which are separated by commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def ansible_debug_logs(environment: Mapping[str, str]) -> bool:
    """Return whether ANSIBLE_DEBUG_LOGS asks for the whole output of runs; log a value that is not a boolean."""
    text = environment.get("ANSIBLE_DEBUG_LOGS")
    if text is None:
        return False
    try:
        return parse_boolean(text)
    except ValueError as error:
        logger.info("Invalid environment variable; ignoring it", envVar="ANSIBLE_DEBUG_LOGS", error=str(error))
        return False


def output_verbosity(environment: Mapping[str, str]) -> int:
    """Return the number in ANSIBLE_VERBOSITY, or 0."""
    return parse_integer(environment.get("ANSIBLE_VERBOSITY", "")) or 0


def leader_election_id(environment: Mapping[str, str]) -> str:
    """Return the name of the Lease from the deprecated variable OPERATOR_NAME, or an empty string."""
    name = environment.get("OPERATOR_NAME", "")
    if "OPERATOR_NAME" in environment:
        flag = "--leader-election-id"
        logger.warning("Deprecated environment variable", envVar="OPERATOR_NAME", replacedBy=flag)
    return name


def max_concurrent_reconciles(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return how many objects of a kind are reconciled at once, None if the flag decides.

    WORKER_<KIND>_<GROUP> is the old name of MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> and is used only if that is unset.
    """
    name, old_name = (_per_kind(prefix, gvk) for prefix in ("MAX_CONCURRENT_RECONCILES", "WORKER"))
    if name not in environment and old_name in environment:
        logger.warning("Deprecated environment variable", envVar=old_name, replacedBy=name)
        name = old_name
    return _number(name, environment, at_least=1)


def ansible_verbosity(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the number of -v options in ANSIBLE_VERBOSITY_<KIND>_<GROUP>, None if the flag decides."""
    return _number(_per_kind("ANSIBLE_VERBOSITY", gvk), environment, at_least=0, at_most=HIGHEST_VERBOSITY)


def parse_integer(text: str) -> int | None:
    """Return the text as an integer, None if it is not one."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _per_kind(prefix: str, gvk: GVK) -> str:
    return f"{prefix}_{gvk.kind}_{gvk.group}".upper().replace(".", "_")


def _number(name: str, environment: Mapping[str, str], at_least: int, at_most: int | None = None) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    number = parse_integer(text)
    if number is None or number < at_least or (at_most is not None and number > at_most):
        upper = "" if at_most is None else f" and at most {at_most}"
        expected = f"a whole number, at least {at_least}{upper}"
        logger.info("Invalid environment variable; using the flag's value", envVar=name, value=text, expected=expected)
        return None
    return number


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


MINIMUM = "2.18"


def check_ansible_core() -> None:
    """Raise ConfigurationError unless this Python has an ansible-core that runs can use."""
    try:
        found = version("ansible-core")
    except PackageNotFoundError:
        raise ConfigurationError(f"ansible-core is not installed: {_advice()}") from None
    if release_numbers(found)[:2] < release_numbers(MINIMUM):
        raise ConfigurationError(f"found ansible-core {found}, expected {MINIMUM} or newer: {_advice()}")


def _advice() -> str:
    return f"install it with pip install 'ansible-core>={MINIMUM}'"


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (5, 3, 0) of "5.3.0-beta.1": three at most, none if unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
