"""The annotations that tie an object to its primary where an owner reference may not.

They are the Operator SDK's own, so that objects made under the Go runner are found again. The proxy writes them, and
informers keep them to know whose dependent an object is.
"""

from typing import Final

PRIMARY_ANNOTATION: Final = "operator-sdk/primary-resource"
"""Names the primary: ``namespace/name``."""

PRIMARY_TYPE_ANNOTATION: Final = "operator-sdk/primary-resource-type"
"""Names the primary's kind: ``Kind.group``, ``Kind`` for the core group."""
