"""The tables of the keys of ``watches.yaml``, from their declarations."""

from collections.abc import Iterator
from typing import Any

from tools.docs.markdown import code, linked, table

from rolecall.runner.config import watch_keys as declared
from rolecall.runner.config.watch_keys import BOOLEAN, LIST, Key

_LINKS = {
    declared.MANAGE_STATUS: ("status", "../concepts/status.md"),
    declared.READY_CONDITIONS: ("conditions", "../concepts/status.md#ready-reconciling-and-stalled"),
    declared.READY: ("`Ready`", "#ready"),
    declared.STALLED_AFTER: ("`Stalled`", "../concepts/status.md#ready-reconciling-and-stalled"),
    declared.SELECTOR: ("matching labels", "#selector"),
    declared.WATCH_READS: ("the last run has read", "../concepts/reads-as-triggers.md"),
    declared.WATCH_DEPENDENT_RESOURCES: ("dependents", "../concepts/dependents-and-ownership.md"),
    declared.BLACKLIST: ("kinds", "#blacklist"),
    declared.FINALIZER: ("what runs", "#finalizer"),
    declared.TRIGGERS: ("other objects", "#triggers"),
    declared.STATUS: ("the result of a run", "../concepts/status.md"),
}


def tables() -> dict[str, tuple[Key[Any], ...]]:
    """Return the keys of each mapping in a watches file: ``entry``, and nested mappings by the name of their key."""
    return {"entry": declared.ENTRY, **{key.name: key.keys for key in _with_keys(declared.ENTRY)}}


def keys_block(name: str) -> str:
    """Return the table of the keys of an entry, or of a mapping in it. Raise LookupError."""
    found = tables()
    if name not in found:
        raise LookupError(f"expected one of {', '.join(found)}")
    return table(("key", "value", "default", "meaning"), map(_row, found[name]))


def _with_keys(keys: tuple[Key[Any], ...]) -> Iterator[Key[Any]]:
    for key in keys:
        if key.keys:
            yield key
            yield from _with_keys(key.keys)


def _row(key: Key[Any]) -> tuple[str, str, str, str]:
    value = "list of mappings" if key.type is LIST and key.keys else key.type.name
    meaning = linked(key.help, *_LINKS[key]) if key in _LINKS else key.help
    return f"{code(key.name)}{' *' if key.is_ours else ''}", value, _default(key), meaning


def _default(key: Key[Any]) -> str:
    if key.is_required:
        return "required"
    if key.default_text:
        return key.default_text
    if key.type is BOOLEAN and key.default is not None:
        return code(str(key.default).lower())
    return code(str(key.default)) if key.default else "none"
