"""The entry of a watch as it stands in a record: whatever of it decides what a run does."""

from typing import Any

from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch


def entry_of(watch: Watch) -> dict[str, Any]:
    """Return the keys of a watch that a run depends on, by their names in ``watches.yaml``."""
    finalizer = watch.finalizer
    return {
        "group": watch.gvk.group,
        "version": watch.gvk.version,
        "kind": watch.gvk.kind,
        **_content(watch.content),
        "vars": dict(watch.variables),
        "manageStatus": watch.manage_status,
        "snakeCaseParameters": watch.snake_case_parameters,
        "markUnsafe": watch.mark_unsafe,
        "allowVariables": sorted(watch.allow_variables),
        "finalizer": None
        if finalizer is None
        else {
            "name": finalizer.name,
            **(_content(finalizer.content) if finalizer.content else {}),
            "vars": dict(finalizer.variables),
        },
        "status": {name: str(path) for name, path in watch.status.items()},
    }


def _content(content: Content) -> dict[str, str]:
    return {"role" if isinstance(content, RoleContent) else "playbook": str(content.path)}
