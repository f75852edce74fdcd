"""Small projects on disk for the tests of the strict check."""

from pathlib import Path

import pytest

from tests import CORE

since_2_19 = pytest.mark.skipif(CORE < (2, 19), reason="ansible-core 2.18 accepts what is found")

ENTRY = "- group: test.rolecall.dev\n  version: v1\n  kind: Thing\n  role: thing\n"

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: test.rolecall.dev
  names: {kind: Thing}
  versions:
    - name: v1
      served: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
            spec:
              type: object
              required: [size]
              properties:
                size: {type: integer}
                shoeColour: {type: string}
"""

ARGUMENTS = """\
argument_specs:
  main:
    options:
      size: {type: int, required: true}
      shoe_colour: {type: str}
"""


def write(directory: Path, **files: str) -> None:
    """Write files of the role ``thing``; the name ``tasks__main`` is the file tasks/main.yml."""
    for name, text in files.items():
        path = directory / "roles/thing" / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
