import pytest
from bench.report import Row, Samples, head, markdown, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.1234, "0.123"), (2.0, "2"), (16.06, "16.1"), (99.94, "99.9"), (140.6, "141"), (12345.6, "12,346")],
)
def test_a_number_has_three_digits_and_is_whole_from_a_hundred_on(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "goal", "verdict"), [(3.0, 3.0, "met"), (3.1, 3.0, "**missed**"), (0.0, 0.0, "met"), (9.0, None, "")]
)
def test_a_goal_is_an_upper_limit(value: float, goal: float | None, verdict: str) -> None:
    assert Row("start", value, "s", goal).verdict == verdict


def test_a_percentile_is_a_value_that_was_measured() -> None:
    samples = Samples([float(value) for value in range(50, 0, -1)])
    assert (samples.percentile(95), samples.percentile(100), samples.percentile(0)) == (48.0, 50.0, 1.0)


def test_the_median_and_the_spread_do_not_depend_on_the_order() -> None:
    samples = Samples([0.9, 0.7, 2.5])
    assert (samples.median, samples.spread) == (0.9, "0.7 to 2.5")


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Samples().percentile(95)


def test_the_head_has_a_line_for_each_circumstance() -> None:
    assert head({"Machine": "2 CPUs", "Date": "today"}) == "- Machine: 2 CPUs\n- Date: today\n"


def test_the_table_has_a_line_for_each_row() -> None:
    rows = [Row("ready", 0.9, "s", 3.0, "median of 5"), Row("memory", 1234.5, "KiB")]
    assert markdown(rows) == (
        "| what | measured | goal | | remark |\n"
        "|---|---|---|---|---|\n"
        "| ready | 0.9 s | ≤ 3 s | met | median of 5 |\n"
        "| memory | 1,234 KiB |  |  |  |\n"
    )
