from structlog.testing import capture_logs

from rolecall.kube.errors import ForbiddenError, UnknownKindError
from rolecall.kube.references import GVK
from rolecall.runner.controller.informer import WatchRetry

WIDGET = GVK("example.com", "v1", "Widget")
MISSING = UnknownKindError(WIDGET)


def test_missing_kind_is_retried_every_few_seconds_with_few_warnings() -> None:
    retry = WatchRetry(WIDGET, None)
    waited = 0.0
    with capture_logs() as logs:
        while waited < 1300:
            seconds = retry.delay_after_failure(MISSING)
            assert seconds <= 3
            waited += seconds
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["Kind is not installed; waiting for it"] * 3
    assert "is its CustomResourceDefinition installed?" in warnings[0]["reason"]


def test_another_type_of_failure_is_logged_immediately() -> None:
    retry = WatchRetry(WIDGET, None)
    with capture_logs() as logs:
        retry.delay_after_failure(MISSING)
        retry.delay_after_failure(MISSING)
        retry.delay_after_failure(ForbiddenError(403, "Forbidden", "no"))
        retry.record_success()
        retry.delay_after_failure(MISSING)
    assert len([line for line in logs if line["log_level"] == "warning"]) == 3
