import pytest
from bench.contenders import COLD, KOPF, WARM
from bench.measures import Goal, Measure, at_most, table


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.2, "met"), (0.25, "first met"), (0.3, "first met"), (0.31, "**missed**")]
)
def test_a_verdict_tells_which_of_two_goals_the_median_of_warm_meets(value: float, verdict: str) -> None:
    measure = Measure("one", "s", {WARM: [value, 9.0, 0.0], COLD: [7.0]}, at_most(0.3, 0.2))
    assert measure.verdict == verdict


def test_without_a_warm_sample_there_is_no_verdict_and_no_ratio() -> None:
    measure = Measure("one", "s", {COLD: [7.0]}, at_most(0.3))
    assert (measure.verdict, measure.ratio(COLD)) == ("", "")


@pytest.mark.parametrize(
    ("goal", "text", "inside", "outside"),
    [
        (Goal(most=3), "≤ 3", 3.0, 3.1),
        (Goal(least=490), "≥ 490", 490.0, 489.0),
        (Goal(450, 550), "450 to 550", 500.0, 551.0),
    ],
)
def test_a_goal_is_a_range_with_its_ends(goal: Goal, text: str, inside: float, outside: float) -> None:
    assert (str(goal), goal.is_met(inside), goal.is_met(outside)) == (text, True, False)


def test_the_table_has_medians_with_their_spread_and_ratios_to_warm() -> None:
    measures = [Measure("one", "s", {WARM: [0.2, 0.1, 0.4], COLD: [2.0]}, at_most(0.3, 0.2), "quiet")]
    assert table(measures, [WARM, COLD, KOPF]) == (
        "| measure | goal |  | warm | cold | kopf | cold / warm | remark |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| one (s) | ≤ 0.3, then ≤ 0.2 | met | 0.2 (0.1 to 0.4) | 2 | none | 10 | quiet |\n"
    )
