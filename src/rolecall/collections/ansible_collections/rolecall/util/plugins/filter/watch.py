# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the operator does around a role, for playbooks that do it without an operator.

A playbook that runs a role once must give it the same variables, and make the same status of its result, as the
operator does for an entry of watches.yaml. So these filters call the very functions of the package that the operator
calls; they need it to be installed beside Ansible.
"""

from collections.abc import Callable
from typing import Any

from rolecall.kube.jsonpath import parse_path
from rolecall.kube.references import GVK
from rolecall.reconcile.status import map_result
from rolecall.runs.extra_vars import ExtraVarsRequest, extra_vars

Object = dict[str, Any]


class FilterModule:
    """What Ansible asks for the filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give the filters by the names that playbooks use."""
        return {"role_variables": role_variables, "mapped_status": mapped_status}


def role_variables(obj: Object, watch: Object) -> Object:
    """Give the variables that the operator gives the role for this object and this entry of watches.yaml.

    Nothing is marked as unsafe: what a task has read from the cluster is never evaluated by Ansible.
    """
    request = ExtraVarsRequest(
        obj=obj,
        gvk=GVK.of_object(obj),
        snake_case=watch.get("snakeCaseParameters", True),
        watch_vars=watch.get("vars") or {},
    )
    return extra_vars(request)


def mapped_status(obj: Object, watch: Object, stats: Object) -> Object:
    """Give the status fields that the operator makes of what the role left with set_stats."""
    mapping = {name: parse_path(path) for name, path in (watch.get("status") or {}).items()}
    generation = obj["metadata"].get("generation")
    observed = {} if generation is None else {"observedGeneration": generation}
    return {**map_result(mapping, {"stats": stats, "resource": obj}), **observed}
