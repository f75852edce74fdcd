"""Needs what is not there."""

import not_installed_anywhere  # type: ignore[import-not-found]  # noqa: F401
from ansible.module_utils.basic import AnsibleModule

AnsibleModule({}).exit_json()
