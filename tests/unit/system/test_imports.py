import gc
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rolecall.system.imports import without_collections

UNUSED = ("cryptography", "kubernetes.client", "pydantic", "requests", "rich")


def test_operator_imports_no_library_that_it_does_not_use() -> None:
    """They would take 25 MiB and half a second of each operator."""
    program = "import json, sys, rolecall.cli.run, rolecall.runner.operator; print(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert set(UNUSED) & set(json.loads(printed)) == set()


def test_official_client_is_complete_after_the_operator_has_imported_a_part() -> None:
    program = """
import rolecall.kube.client, structlog, rich
import kubernetes
from kubernetes.aio.client import Configuration
from rolecall.kube.official_client import Configuration as part
assert kubernetes.client.CoreV1Api and kubernetes.config.load_kube_config and part is Configuration
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Make what a test has excluded from collections part of them again."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_imports_without_collections_exclude_what_they_leave_from_later_ones() -> None:
    def fail() -> None:
        with without_collections():
            assert not gc.isenabled()
            raise ImportError

    gc.unfreeze()
    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(sys.modules)
