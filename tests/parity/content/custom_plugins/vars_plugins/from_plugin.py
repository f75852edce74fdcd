"""Gives every host a variable."""

from typing import Any

from ansible.plugins.vars import BaseVarsPlugin

DOCUMENTATION = """
name: from_plugin
short_description: a variable
description: [gives a variable]
author: [rolecall]
options:
  stage:
    ini: [{key: stage, section: vars_from_plugin}]
    env: [{name: ANSIBLE_VARS_PLUGIN_STAGE}]
"""


class VarsModule(BaseVarsPlugin):  # type: ignore[misc]
    REQUIRES_ENABLED = False

    def get_vars(self, loader: Any, path: str, entities: Any, **_: Any) -> dict[str, str]:
        super().get_vars(loader, path, entities)
        return {"from_vars_plugin": "given by a plugin"}
