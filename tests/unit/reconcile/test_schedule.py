from pathlib import Path

import pytest

from rolecall.config.content import RoleContent
from rolecall.config.watches import Watch
from rolecall.reconcile.schedule import PERIOD_ANNOTATION, period_seconds
from tests.integration.things import THING

WATCH = Watch(THING, RoleContent(Path("/roles/thing")), reconcile_period_seconds=0.2)


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 1.0), ("1ns", 1.0), ("1s", 1.0), ("90s", 90.0), ("0s", 0.0)])
def test_an_object_cannot_ask_for_a_period_below_a_second(text: str, seconds: float) -> None:
    assert period_seconds({"metadata": {"annotations": {PERIOD_ANNOTATION: text}}}, WATCH, 60.0) == seconds


def test_a_watch_can() -> None:
    assert period_seconds({"metadata": {}}, WATCH, 60.0) == 0.2
