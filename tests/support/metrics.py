"""Metrics for tests that don't look at them."""

from rolecall.kube.references import GVK
from rolecall.runner.serving.metrics import ControllerMetrics, OperatorMetrics
from tests.support.things import THING


def controller_metrics(gvk: GVK = THING) -> ControllerMetrics:
    """Return the metrics of one controller."""
    return OperatorMetrics("test", [gvk]).controller(gvk, workers=1)
