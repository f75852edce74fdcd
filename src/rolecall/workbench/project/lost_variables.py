"""Finds variables of a role that lose against the variables of an object.

Every field of a spec is an extra var, and so are the ``vars`` of ``watches.yaml``. Extra vars win over everything that
a role sets: ``register``, ``set_fact``, ``vars``, and the loop variable of an include. A role that uses such a name
loses its own value without a message, in the runs of those objects that set the field. The variable of a loop without
an include is the only one that wins. Defaults are meant to lose, so they aren't reported: files of variables, ``vars``
of a play, and values that a task sets only if the variable has none.

Ansible in turn overrides a few extra vars, see ``IGNORED``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rolecall.workbench.yaml_files import below

Finding = tuple[object, str]
"""The value from which the line is known, and a message."""

Origins = Mapping[str, str]
"""The extra vars with their origins, for example ``the field spec.size of Foo``."""

IGNORED: Final = frozenset(
    {"environment", "groups", "hostvars", "play_hosts", "playbook_dir", "vars"}
    | {"role_name", "role_names", "role_path", "role_uuid"}
    | {"True", "False", "None", "true", "false", "none", "self"}
)
"""The extra vars that Ansible or Jinja overrides, without reserved ones (``is_reserved``)."""

_BUILTIN: Final = ("", "ansible.builtin.", "ansible.legacy.")
_SET_FACT: Final = tuple(f"{prefix}set_fact" for prefix in _BUILTIN)
_INCLUDE_VARS: Final = tuple(f"{prefix}include_vars" for prefix in _BUILTIN)
_INCLUDES: Final = tuple(f"{prefix}include_{what}" for prefix in _BUILTIN for what in ("tasks", "role"))

_PAIRS: Final = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def find_lost_variables(task: Mapping[str, Any], origins: Origins) -> Iterator[Finding]:
    """Yield the variables of a task, or of a block, that are extra vars too."""
    for name, value, how in _variables(task):
        if name in origins and not _is_default(name, value) and not is_guarded(task, name):
            text = f"{how}: {name} is lost if it is set by {origins[name]}: extra vars win over a role's own variables"
            yield name, f"{text}. Rename the variable"


def is_guarded(task: Mapping[str, Any], name: str) -> bool:
    """Return whether a task has a condition on a variable or its field, such as ``name is not defined``."""
    field = "_?".join(map(re.escape, name.split("_")))
    found = re.search(rf"(?:(?<![\w.])|\bspec\.){field}\b", str(task.get("when", "")), re.IGNORECASE)
    return found is not None


def _variables(task: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """Yield the variables that a task sets: name, value, and key."""
    yield task.get("register"), None, "register"
    for name in ("vars", *_SET_FACT):
        found = task.get(name)
        if isinstance(found, str):  # as in "set_fact: name=value"
            found = dict(_PAIRS.findall(found))
        if isinstance(found, dict):
            yield from ((key, value, name) for key, value in found.items() if key != "cacheable")
    for name in _INCLUDE_VARS:
        if isinstance(found := task.get(name), dict):
            yield found.get("name"), None, f"{name}.name"
    if any(name in task for name in _INCLUDES) and any(key == "loop" or key.startswith("with_") for key in task):
        names = below(task, "loop_control")
        yield names.get("loop_var", "item"), None, "loop_var"
        yield names.get("index_var"), None, "index_var"


def _is_default(name: str, value: object) -> bool:
    """Return whether a value is that of the variable itself, unless it has none."""
    return re.search(rf"(?<![\w.]){re.escape(name)}\s*\|\s*(default|d)\b", str(value)) is not None
