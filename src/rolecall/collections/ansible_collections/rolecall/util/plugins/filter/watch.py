# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters for playbooks that run a role without an operator.

A playbook that runs a role once must pass the same variables, and map the result to the same status, as the operator
does for an entry of ``watches.yaml``. These filters call the same functions as the operator; ``rolecall`` must be
installed in Ansible's environment.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.status import map_result
from rolecall.runner.runs.variables import extra_vars

Object = dict[str, Any]


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"role_variables": role_variables, "mapped_status": mapped_status}


def role_variables(obj: Object, watch: Object) -> Object:
    """Return the variables that the operator passes to the role for this object and this entry of ``watches.yaml``.

    No value is marked as unsafe, because Ansible never evaluates what a task has read from the cluster.
    """
    entry = Watch(
        GVK.of_object(obj),
        RoleContent(Path(str(watch.get("role")))),
        variables=watch.get("vars") or {},
        snake_case_parameters=watch.get("snakeCaseParameters", True),
    )
    return extra_vars(obj, entry)


def mapped_status(obj: Object, watch: Object, stats: Object) -> Object:
    """Return the status fields that the operator maps from the role's ``set_stats``."""
    mapping = {name: FieldPath.parse(path) for name, path in (watch.get("status") or {}).items()}
    generation = obj["metadata"].get("generation")
    observed = {} if generation is None else {"observedGeneration": generation}
    return {**map_result(mapping, {"stats": stats, "resource": obj}), **observed}
