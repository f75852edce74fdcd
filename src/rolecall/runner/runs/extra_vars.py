"""The extra vars of a run: what a role receives from its object.

Names, merge order and corner cases are the Go runner's, so that roles written for it see the same variables. Nothing
is read, written or changed in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.runs.reserved_variables import reserved_among
from rolecall.runner.runs.snake_case import snake_case_keys

META = "ansible_operator_meta"


@dataclass(frozen=True, slots=True)
class ExtraVarsRequest:
    """The sources of the extra vars; ``finalizer_vars`` is None unless the run is for a finalizer."""

    obj: RawObject
    gvk: GVK
    snake_case: bool = True
    mark_unsafe: bool = False
    watch_vars: Mapping[str, Any] = field(default_factory=dict)
    finalizer_vars: Mapping[str, Any] | None = None
    allowed: frozenset[str] = frozenset()
    """Reserved variables that the spec may set."""
    declared: frozenset[str] | None = None
    """The only fields of the spec that become variables; None for all."""


def extra_vars(request: ExtraVarsRequest) -> dict[str, Any]:
    """Return the extra vars of a run; later ones win: spec, meta, object, raw spec, watch vars, finalizer vars.

    Raises ValueError if a field of the spec would set a variable that is reserved for Ansible.
    """
    obj, spec = request.obj, _spec(request.obj)
    parameters = snake_case_keys(spec) if request.snake_case else spec
    if request.declared is not None:
        parameters = {name: value for name, value in parameters.items() if name in request.declared}
    # What the operator sets itself replaces a field of that name, which therefore does no harm.
    if refused := reserved_among(parameters.keys() - {META}, request.allowed):
        raise ValueError(
            f"the spec sets {', '.join(refused)}, which Ansible itself acts on: remove the field, or list the variable "
            "under allowVariables in watches.yaml"
        )
    if request.mark_unsafe:
        obj, spec, parameters = _unsafe(obj), _unsafe(spec), _unsafe(parameters)
    key = ObjectKey.of_object(request.obj)
    # Names of some kinds, such as ClusterRole, may contain braces.
    meta = {"name": key.name, "namespace": key.namespace}
    name = object_variable(request.gvk)
    return {
        **parameters,
        META: _unsafe(meta) if request.mark_unsafe else meta,
        name: obj,
        f"{name}_spec": spec,
        **request.watch_vars,
        **(request.finalizer_vars or {}),
    }


def object_variable(gvk: GVK) -> str:
    """Return the name of the variable that holds the whole object, for example ``_cache_example_com_memcached``."""
    return f"_{gvk.group}_{gvk.kind.lower()}".replace(".", "_").replace("-", "_")


def _spec(obj: RawObject) -> dict[str, Any]:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def _unsafe(value: Any) -> Any:
    """Mark every string, at any depth, as data that Ansible must not evaluate."""
    if isinstance(value, str):
        return {"__ansible_unsafe": value}
    if isinstance(value, dict):
        return {key: _unsafe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unsafe(item) for item in value]
    return value
