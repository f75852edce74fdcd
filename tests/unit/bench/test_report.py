import pytest
from bench.contenders import COLD, KOPF, WARM
from bench.report import Measure, of_warm, table


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.2, "met"), (0.25, "first met"), (0.3, "first met"), (0.31, "**missed**")]
)
def test_a_verdict_tells_which_of_two_goals_the_median_of_warm_meets(value: float, verdict: str) -> None:
    measure = Measure("one", "s", {WARM: [value, 9.0, 0.0], COLD: [7.0]}, (0.3, 0.2))
    assert measure.verdict == verdict


def test_without_a_warm_sample_there_is_no_verdict_and_no_ratio() -> None:
    measure = Measure("one", "s", {COLD: [7.0]}, (0.3,))
    assert (measure.verdict, measure.ratio(COLD)) == ("", "")


@pytest.mark.parametrize(
    ("are_goals_least", "text", "inside", "outside"), [(False, "≤ 3", 3.0, 3.1), (True, "≥ 3", 3.0, 2.9)]
)
def test_limit_itself_meets_a_goal(*, are_goals_least: bool, text: str, inside: float, outside: float) -> None:
    def measure(value: float) -> Measure:
        return Measure("one", "s", {WARM: [value]}, (3.0,), are_goals_least=are_goals_least)

    assert (measure(inside).verdict, measure(outside).verdict) == ("met", "**missed**")
    assert f"| {text} | met |" in table([measure(inside)], [WARM])


def test_the_table_has_medians_with_their_spread_and_ratios_to_warm() -> None:
    measures = [Measure("one", "s", {WARM: [0.2, 0.1, 0.4], COLD: [2.0]}, (0.3, 0.2), "quiet")]
    assert table(measures, [WARM, COLD, KOPF]) == (
        "| measure | goal |  | warm | cold | kopf | cold / warm | remark |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| one (s) | ≤ 0.3, then ≤ 0.2 | met | 0.2 (0.1 to 0.4) | 2 | none | 10 | quiet |\n"
    )


def test_table_of_rolecall_only_has_one_column_of_values() -> None:
    measures = [of_warm("memory", 3.12, "KiB", 15.0, "PSS"), of_warm("rate", 65.3, "a second")]
    assert table(measures, [WARM]) == (
        "| measure | goal |  | warm | remark |\n"
        "|---|---|---|---|---|\n"
        "| memory (KiB) | ≤ 15 | met | 3.12 | PSS |\n"
        "| rate (a second) |  |  | 65.3 |  |\n"
    )
