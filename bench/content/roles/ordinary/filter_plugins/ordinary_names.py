"""Filters of the sixty-task role, as many roles have some."""

import hashlib


def component_name(component: str, instance: str) -> str:
    """Return the name of a component's objects."""
    return f"{instance}-{component}"


def checksum(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class FilterModule:
    """Tells Ansible of the filters."""

    def filters(self) -> dict[str, object]:
        """Return the filters by name."""
        return {"component_name": component_name, "checksum": checksum}
