#!/usr/bin/python
"""A module in Python that knows nothing of Ansible's helpers. WANT_JSON."""  # noqa: EXE001

import json
import sys
from pathlib import Path

given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
print(json.dumps({"changed": False, "given": {key: given[key] for key in given if not key.startswith("_")}}))
