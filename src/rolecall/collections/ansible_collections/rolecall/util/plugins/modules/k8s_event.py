#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module that posts Kubernetes Events about an object.

If an event with the same name, reason, message, and type exists, its count is incremented and its first timestamp
stays, as in Kubernetes' own controllers: a run that fails every minute leaves one event with a count, not hundreds of
events. An event with the same name and different content starts again with a count of one. The module never changes the
object of an event.
"""

DOCUMENTATION = r"""
module: k8s_event
short_description: Post a Kubernetes Event
version_added: "0.1.0"
author: the rolecall authors
description:
  - Creates an Event, or increments the count of an existing Event with the same name and content.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
options:
  state:
    description: Whether the event exists.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: The name of the event.
    type: str
    required: true
  namespace:
    description: The namespace of the event, which is the namespace of the object that it is about.
    type: str
    required: true
  merge_type:
    description: The type of the patch that updates an existing event.
    type: list
    elements: str
    choices: [json, merge, strategic-merge]
  message:
    description: A human-readable message.
    type: str
    required: true
  reason:
    description: The reason for the event as one word in CamelCase.
    type: str
    required: true
  reportingComponent:
    description: The name of the controller that posts the event.
    type: str
    default: rolecall
  type:
    description: The type of the event.
    type: str
    choices: [Normal, Warning]
    default: Normal
  source:
    description: The source of the event, with the key C(component).
    type: dict
    default: {component: rolecall}
  involvedObject:
    description: The object that the event is about.
    type: dict
    suboptions:
      apiVersion:
        description: Its API version.
        type: str
        required: true
      kind:
        description: Its kind.
        type: str
        required: true
      name:
        description: Its name.
        type: str
        required: true
      namespace:
        description: Its namespace; omit it for a cluster-scoped object.
        type: str
      uid:
        description: Its uid; if omitted, the module looks it up.
        type: str
      resourceVersion:
        description: Its resourceVersion; if O(involvedObject.uid) is omitted, the module looks it up.
        type: str
      fieldPath:
        description: The part of the object that the event is about.
        type: str
  appendTimestamp:
    description: Whether the time is appended to the name, so that every call posts a new event.
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
- name: Post an event
  rolecall.util.k8s_event:
    name: "{{ ansible_operator_meta.name }}.synced"
    namespace: "{{ ansible_operator_meta.namespace }}"
    type: Normal
    reason: Synced
    message: Database synced successfully
    involvedObject:
      apiVersion: example.com/v1
      kind: Database
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"
"""

RETURN = r"""
result:
  description: The event.
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

try:
    from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError, ResourceNotFoundError
except ImportError:  # AnsibleK8SModule reports it
    DynamicApiError = NotFoundError = ResourceNotFoundError = CoreException

INVOLVED = {
    "apiVersion": {"type": "str", "required": True},
    "kind": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "namespace": {"type": "str"},
    "uid": {"type": "str"},
    "resourceVersion": {"type": "str"},
    "fieldPath": {"type": "str"},
}

ARGUMENTS = {
    **AUTH_ARG_SPEC,
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "name": {"type": "str", "required": True},
    "namespace": {"type": "str", "required": True},
    "merge_type": {"type": "list", "elements": "str", "choices": ["json", "merge", "strategic-merge"]},
    "message": {"type": "str", "required": True},
    "reason": {"type": "str", "required": True},
    "reportingComponent": {"type": "str", "default": "rolecall"},
    "type": {"type": "str", "choices": ["Normal", "Warning"], "default": "Normal"},
    "source": {"type": "dict", "default": {"component": "rolecall"}},
    "involvedObject": {"type": "dict", "options": INVOLVED},
    "appendTimestamp": {"type": "bool", "default": False},
}


def post(client: Any, parameters: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Create the event, or increment its count."""
    given = {key: value for key, value in (parameters["involvedObject"] or {}).items() if value is not None}
    wanted = new_event(parameters, _with_uid(client, given) if given else None, datetime.now(UTC))
    found = _found(client, wanted["metadata"]["name"], parameters["namespace"])
    event = wanted if found is None else increment_count(wanted, found)
    if check_mode:
        return {"changed": True, "result": event}
    resource = client.resource("Event", "v1")
    if found is None:
        return {"changed": True, "result": client.create(resource, event, namespace=parameters["namespace"]).to_dict()}
    patch_types = [each for each in parameters["merge_type"] or [] if each != "json"] or ["merge"]
    content_type = f"application/{patch_types[0]}-patch+json"
    return {
        "changed": True,
        "result": client.patch(resource, event, content_type=content_type, **event["metadata"]).to_dict(),
    }


def remove(client: Any, parameters: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Delete the event if it exists."""
    where = {"name": parameters["name"], "namespace": parameters["namespace"]}
    found = _found(client, **where)
    if found is not None and not check_mode:
        client.delete(client.resource("Event", "v1"), **where)
    return {"changed": found is not None, "result": found or {}}


def new_event(parameters: dict[str, Any], involved: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    """Return a new event for the module's parameters, first seen at ``now`` (UTC)."""
    seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    suffix = f".{int(now.timestamp() * 1_000_000):x}" if parameters["appendTimestamp"] else ""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": parameters["name"] + suffix, "namespace": parameters["namespace"]},
        **{key: parameters[key] for key in ("reason", "message", "type", "source", "reportingComponent")},
        "count": 1,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        **({} if involved is None else {"involvedObject": involved}),
    }


def increment_count(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the wanted event with the count of the found one plus one, if both have the same content."""
    if any(wanted[key] != found.get(key) for key in ("reason", "message", "type")):
        return wanted
    first = found.get("firstTimestamp") or wanted["firstTimestamp"]
    return {**wanted, "count": (found.get("count") or 0) + 1, "firstTimestamp": first}


def _found(client: Any, name: str, namespace: str) -> dict[str, Any] | None:
    """Return an event, or None."""
    try:
        found: dict[str, Any] = client.get(client.resource("Event", "v1"), name=name, namespace=namespace).to_dict()
    except NotFoundError:
        return None
    return found


def _with_uid(client: Any, involved: dict[str, Any]) -> dict[str, Any]:
    """Return the reference with the uid of its object, unchanged if the object, or its kind, doesn't exist."""
    if involved.get("uid"):
        return involved
    try:
        resource = client.resource(involved["kind"], involved["apiVersion"])
        found = client.get(resource, name=involved["name"], namespace=involved.get("namespace"))
    except (NotFoundError, ResourceNotFoundError):
        return involved
    metadata = found.to_dict()["metadata"]
    return {**involved, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def main() -> None:
    """Run the module."""
    module = AnsibleK8SModule(module_class=AnsibleModule, argument_spec=ARGUMENTS, supports_check_mode=True)
    act = post if module.params["state"] == "present" else remove
    try:
        module.exit_json(**act(get_api_client(module), module.params, check_mode=module.check_mode))
    except CoreException as error:
        module.fail_from_exception(error)
    except DynamicApiError as error:
        # The message of operator_sdk.util, which roles may look for.
        module.fail_json(msg=f"Unable to create event: {error.summary()}", status=error.status)


if __name__ == "__main__":
    main()
