import pytest

from rolecall.kube.readiness import Readiness, verdict_on
from rolecall.kube.references import GVK
from tests.support.readiness_cases import CASES, NOW, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind} {case.readiness} {case.reason}")
def test_readiness_has_its_reason(case: Case) -> None:
    verdict = verdict_on(GVK.of_object(case.obj), case.obj, NOW)
    assert (verdict.readiness, verdict.reason) == (case.readiness, case.reason)


@pytest.mark.parametrize(
    "odd", ["text", ["x"], {"conditions": "x"}, {"conditions": [1, {"type": ["x"]}]}, {"conditions": [{}]}]
)
def test_odd_status_of_a_custom_resource_is_ready(odd: object) -> None:
    assert (
        verdict_on(GVK("example.com", "v1", "Any"), {"metadata": {}, "status": odd}, NOW).readiness == Readiness.READY
    )
