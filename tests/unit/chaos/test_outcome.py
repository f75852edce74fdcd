from tests.chaos.outcome import Outcome, Result, Violation


def test_the_table_counts_what_was_violated_and_shows_median_and_worst() -> None:
    unconverged = Violation("unconverged", "thing-1 is missing")
    result = Result(
        7, [Outcome("a", 1.0), Outcome("a", 2.0), Outcome("a", 9.0), Outcome("b", None, [unconverged, unconverged])]
    )
    rows = result.table(["a", "b", "c"]).splitlines()[2:]
    assert rows == [
        "| a | 3 | 2.0 | 9.0 | 0 | 0 | 0 | 0 | 0 |",
        "| b | 1 | none | none | 2 | 0 | 0 | 0 | 0 |",
        "| all, and after stop | 4 |  |  | 2 | 0 | 0 | 0 | 0 |",
    ]


def test_what_is_found_at_the_end_counts_too() -> None:
    result = Result(7, [Outcome("a", 1.0)], [Violation("leaked", "process 1")])
    assert result.violations == ["after stop: leaked: process 1"]
    assert result.table(["a"]).endswith("| 0 | 0 | 0 | 1 | 0 |")


def test_nothing_is_violated_without_violations() -> None:
    assert Result(7, [Outcome("a", 1.0)]).violations == []
