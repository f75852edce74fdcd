"""Text in base64."""

import base64
import binascii


def decoded(text: str) -> str:
    """Return the text that is encoded in another one, empty if there is none."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
