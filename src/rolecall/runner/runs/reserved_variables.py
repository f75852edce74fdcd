"""The variables that a spec may not set, because Ansible or its plugins act on them.

Every field of a spec becomes an extra var. Ansible takes its interpreter, its shell, its temporary directory and its
connection from variables too, and starts programs by them: an object's author could run code of their own, with the
credentials of the run, where the CRD keeps unknown fields. ``markUnsafe`` does not help, since these values need no
template. A watch can allow single variables by name.
"""

import re
from collections.abc import Iterable

_RESERVED = re.compile(
    r"_*ansible_\w*"  # Ansible's own, also as the snake case of AnsibleConfigX
    r"|inventory_hostname\w*|group_names|omit"  # magic variables
    r"|become(?:_user)?|\w+_become_method"
    # Options of connection, lookup and vars plugins: addresses, credentials and files that a run would use.
    r"|(?:azure|conjur|http_login|lmdb|passwordstore|proxmox|sops|wsl)(?:_\w+)?",
    re.ASCII,
)


def is_reserved(name: str) -> bool:
    """Return whether a variable changes what Ansible does, and not only what a role sees."""
    return _RESERVED.fullmatch(name) is not None


def reserved_among(names: Iterable[str], allowed: frozenset[str]) -> list[str]:
    """Return the reserved ones among these variables, sorted, except those that a watch allows."""
    return sorted(name for name in names if is_reserved(name) and name not in allowed)
