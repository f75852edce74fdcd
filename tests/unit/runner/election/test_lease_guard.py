import os
from contextlib import suppress

import pytest

from rolecall.kube.errors import KubeError
from rolecall.runner.election.lease_guard import end_at


def test_guard_that_reads_nothing_is_an_error() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 16))
    with pytest.raises(KubeError, match="does not answer"):
        end_at(writing, 1.0)
    os.close(reading)
    os.close(writing)
