#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"time": {"required": True}})
module.exit_json(period=module.params["time"], installed="this one was installed")
