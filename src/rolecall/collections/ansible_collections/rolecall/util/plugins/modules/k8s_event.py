#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module that posts Kubernetes Events about an object.

If an event with the same name, reason, message and type exists, its count is incremented, as in Kubernetes' own
controllers: a run that fails every minute leaves one event with a count, not hundreds of events. An event with the same
name and different content starts again with a count of one. The module never changes the object that an event is about.
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
from ansible_collections.rolecall.util.plugins.module_utils.events import increment_count, new_event

try:
    from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError
except ImportError:  # AnsibleK8SModule reports it
    DynamicApiError = NotFoundError = CoreException

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


class Events:
    """The events of one namespace."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._resource = client.resource("Event", "v1")

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the event with this name, or None."""
        try:
            found: dict[str, Any] = self._client.get(self._resource, name=name, namespace=self._namespace).to_dict()
        except NotFoundError:
            return None
        return found

    def create(self, event: dict[str, Any]) -> dict[str, Any]:
        """Create the event and return it as the API server stored it."""
        created: dict[str, Any] = self._client.create(self._resource, event, namespace=self._namespace).to_dict()
        return created

    def patch(self, event: dict[str, Any], patch_type: str) -> dict[str, Any]:
        """Patch the event with the same name and return it."""
        content_type = f"application/{patch_type}-patch+json"
        where = {"name": event["metadata"]["name"], "namespace": self._namespace}
        patched: dict[str, Any] = self._client.patch(
            self._resource, event, content_type=content_type, **where
        ).to_dict()
        return patched

    def delete(self, name: str) -> None:
        """Remove the event."""
        self._client.delete(self._resource, name=name, namespace=self._namespace)

    def with_uid(self, involved: dict[str, Any]) -> dict[str, Any]:
        """Return the reference with the uid of its object, unchanged if the object does not exist."""
        if involved.get("uid"):
            return involved
        resource = self._client.resource(involved["kind"], involved["apiVersion"])
        try:
            found = self._client.get(resource, name=involved["name"], namespace=involved.get("namespace"))
        except NotFoundError:
            return involved
        metadata = found.to_dict()["metadata"]
        return {**involved, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def post(events: Events, parameters: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Create the event, or increment its count."""
    now = datetime.now(UTC)
    given = {key: value for key, value in (parameters["involvedObject"] or {}).items() if value is not None}
    involved = events.with_uid(given) if given else None
    wanted = new_event(parameters, involved, now)
    found = events.find(wanted["metadata"]["name"])
    event = wanted if found is None else increment_count(wanted, found)
    if check_mode:
        return {"changed": True, "result": event}
    if found is None:
        return {"changed": True, "result": events.create(event)}
    patch_types = [each for each in parameters["merge_type"] or [] if each != "json"] or ["merge"]
    return {"changed": True, "result": events.patch(event, patch_types[0])}


def remove(events: Events, parameters: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Delete the event if it exists."""
    found = events.find(parameters["name"])
    if found is not None and not check_mode:
        events.delete(parameters["name"])
    return {"changed": found is not None, "result": found or {}}


def main() -> None:
    """Run the module."""
    module = AnsibleK8SModule(module_class=AnsibleModule, argument_spec=ARGUMENTS, supports_check_mode=True)
    act = post if module.params["state"] == "present" else remove
    try:
        events = Events(get_api_client(module), module.params["namespace"])
        module.exit_json(**act(events, module.params, check_mode=module.check_mode))
    except CoreException as error:
        module.fail_from_exception(error)
    except DynamicApiError as error:
        message = f"Cannot write event {module.params['name']!r}: {error.summary()}"
        module.fail_json(msg=message, status=error.status)


if __name__ == "__main__":
    main()
