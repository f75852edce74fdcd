"""rolecall's own digests use hashes that FIPS 140-3 approves: a Python in FIPS mode raises an error for others."""

import re

from tests.unit.docs.pages import PROJECT

APPROVED = {"sha256", "shake_256"}


def test_only_approved_hashes_are_used() -> None:
    used = {
        name
        for path in (PROJECT / "src/rolecall").rglob("*.py")
        for line in path.read_text().splitlines()
        for name in re.findall(r"hashlib\.(\w+)\(|from hashlib import (\w+)", line)
    }
    assert {one or other for one, other in used} == APPROVED
