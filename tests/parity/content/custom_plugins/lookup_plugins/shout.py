"""A lookup that lies beside the playbook."""

from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc]
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        self.set_options(var_options=variables, direct=options)
        if not terms:
            raise AnsibleError("nothing to shout")
        return [f"{term.upper()}!" for term in terms]
