"""Only DNS uses asyncio's default executor, because a renewal of the Lease can have to wait for it."""

import re

from tests.static.repository import ROOT

USES = re.compile(r"run_in_executor\(\s*None|asyncio\.to_thread\(|set_default_executor\(")


def test_no_work_of_ours_is_in_the_default_executor() -> None:
    files = [path for path in (ROOT / "src").rglob("*.py") if "collections" not in path.parts]
    assert len(files) > 100
    assert [str(path) for path in files if USES.search(path.read_text())] == []
