#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module that sets fields and conditions in the status of an object.

It reads the object, merges, and writes the status subresource if something differs. After a conflict (the operator
writes the same status) it merges again and retries. Other fields stay as they are. The merge is in the module utility
``status``. Failures start with the messages of ``operator_sdk.util`` and have its key ``error``, because roles may look
for them.
"""

DOCUMENTATION = r"""
module: k8s_status
short_description: Set fields and conditions in the status of a Kubernetes object
version_added: "0.1.0"
author: the rolecall authors
description:
  - Merges fields and conditions into the status of an object, and writes the status subresource.
  - Writes nothing if the status already has all fields and conditions.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
options:
  api_version:
    description: The API version of the object.
    type: str
    default: v1
    aliases: [api, version]
  kind:
    description: The kind of the object.
    type: str
    required: true
  name:
    description: The name of the object.
    type: str
    required: true
  namespace:
    description: The namespace of the object.
    type: str
  status:
    description:
      - Fields of the status.
      - They are applied as a JSON merge patch (lists are replaced, null removes a field).
      - C(conditions) among them are merged by type.
    type: dict
  conditions:
    description: Conditions, merged with those of the object by type. Mutually exclusive with conditions in O(status).
    type: list
    elements: dict
    suboptions:
      type:
        description: The type of the condition.
        type: str
        required: true
      status:
        description: Whether the condition is true.
        type: str
        required: true
        choices: ["True", "False", "Unknown"]
      reason:
        description: The reason as one word in CamelCase.
        type: str
      message:
        description: A human-readable message.
        type: str
      lastHeartbeatTime:
        description: When the condition was last updated, in RFC 3339 format.
        type: str
      lastTransitionTime:
        description: When the status of the condition last changed, in RFC 3339 format. Set automatically on a change.
        type: str
  replace:
    description: Whether O(status) and O(conditions) replace the whole status instead of being merged into it.
    type: bool
    default: false
    aliases: [force]
  replace_lists:
    description: Whether a list in O(status) is also written if the current list has all of its elements and more.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
requirements:
  - kubernetes >= 24.2.0
"""

EXAMPLES = r"""
- name: Report that the database is reachable
  rolecall.util.k8s_status:
    api_version: example.com/v1
    kind: Database
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      endpoint: db.example.svc
    conditions:
      - type: Reachable
        status: "True"
        reason: Answered
"""

RETURN = r"""
error:
  description:
    - The response of the API server with the keys C(status), C(reason), and C(body), or what is wrong with a condition.
    - Messages and errors are those of C(operator_sdk.util.k8s_status), because roles compare them.
  returned: failure
  type: raw
condition:
  description: The invalid condition.
  returned: failure because of a condition
  type: dict
result:
  description: The object after the write, or the current object if nothing was written.
  returned: success
  type: dict
"""

from datetime import UTC, datetime
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.ansiblemodule import AnsibleModule
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.rolecall.util.plugins.module_utils.status import invalid_in, merge_status

try:
    from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError, ResourceNotFoundError
except ImportError:  # AnsibleK8SModule reports it
    ConflictError = DynamicApiError = ResourceNotFoundError = CoreException

ATTEMPTS = 5

CONDITION = {
    "type": {"type": "str", "required": True},
    "status": {"type": "str", "required": True, "choices": ["True", "False", "Unknown"]},
    "reason": {"type": "str"},
    "message": {"type": "str"},
    "lastHeartbeatTime": {"type": "str"},
    "lastTransitionTime": {"type": "str"},
}

ARGUMENTS = {
    **AUTH_ARG_SPEC,
    "api_version": {"type": "str", "default": "v1", "aliases": ["api", "version"]},
    "kind": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "namespace": {"type": "str"},
    "status": {"type": "dict"},
    "conditions": {"type": "list", "elements": "dict", "options": CONDITION},
    "replace": {"type": "bool", "default": False, "aliases": ["force"]},
    "replace_lists": {"type": "bool", "default": False},
}


class StatusError(Exception):
    """A failure; ``details`` are the further results of the task."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


def response_of(error: Any) -> dict[str, Any]:
    """Return the response of the API server as a task returns it."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    return {"status": error.status, "reason": error.reason, "body": body}


def find_resource(module: Any, client: Any) -> Any:
    """Return the API resource of the kind, which has a status. Raise StatusError."""
    kind, api_version = module.params["kind"], module.params["api_version"]
    try:
        resource = client.resource(kind, api_version)
    except ResourceNotFoundError as error:
        matched = "[kind, name, singularName, shortNames]"
        raise StatusError(f"Failed to find exact match for {api_version}.{kind} by {matched}") from error
    if "status" not in (resource.subresources or ()):
        raise StatusError(f"Resource {api_version}.{resource.kind} does not support the status subresource")
    return resource


def write(module: Any, client: Any) -> dict[str, Any]:
    """Write the merged status of the object; merge again and retry after a conflict. Raise StatusError."""
    for each in module.params["conditions"] or ():
        if error := invalid_in(each):
            raise StatusError("The specified conditions failed to validate", error=error, condition=each)
    resource = find_resource(module, client)
    where = {"name": module.params["name"], "namespace": module.params["namespace"]}
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found = client.get(resource, **where).to_dict()
        except DynamicApiError as error:
            raise StatusError("Failed to retrieve requested object", error=response_of(error)) from error
        # The client puts the name into a URL path as it is, so "a#b" or "../x" would lead to another object.
        if found["metadata"]["name"] != where["name"]:
            raise StatusError(f"Found {found['metadata']['name']!r} instead of the requested object {where['name']!r}")
        old = found.get("status") or {}
        try:
            status = merge_status(old, module.params, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        except ValueError as error:
            raise StatusError(str(error)) from error
        changed = status != old
        wanted = {**found, "status": status}
        if not changed or module.check_mode:
            return {"changed": changed, "result": wanted}
        try:
            return {"changed": True, "result": resource.status.replace(body=wanted, **where).to_dict()}
        except DynamicApiError as error:
            if not isinstance(error, ConflictError) or attempt == ATTEMPTS:
                text = f"Failed to replace status: {error.summary()}"
                raise StatusError(text, error=response_of(error)) from error
    raise AssertionError("unreachable")


def main() -> None:
    """Run the module."""
    module = AnsibleK8SModule(module_class=AnsibleModule, argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        module.exit_json(**write(module, get_api_client(module)))
    except CoreException as error:
        module.fail_from_exception(error)
    except StatusError as error:
        module.fail_json(msg=str(error), **error.details)


if __name__ == "__main__":
    main()
