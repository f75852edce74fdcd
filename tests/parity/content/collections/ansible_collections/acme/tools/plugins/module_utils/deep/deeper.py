"""A helper of helpers."""

from ansible_collections.acme.tools.plugins.module_utils.words import greeting

DEEP = greeting("from the depth")
