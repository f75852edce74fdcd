#!/usr/bin/python
"""Puts fields into a status by a patch that carries the whole object as it was read, its version included."""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.operator_sdk.util.plugins.module_utils.connecting import connected

NAMES = {"api_version": {"default": "v1"}, "kind": {"required": True}, "name": {"required": True}, "namespace": {}}


def main():
    module = AnsibleModule(argument_spec={**NAMES, "status": {"type": "dict"}})
    given = module.params
    resource = connected(module).resources.get(api_version=given["api_version"], kind=given["kind"])
    found = resource.get(name=given["name"], namespace=given["namespace"]).to_dict()
    found["status"] = given["status"]
    patched = resource.status.patch(body=found, content_type="application/merge-patch+json")
    module.exit_json(changed=True, result=patched.to_dict())


if __name__ == "__main__":
    main()
