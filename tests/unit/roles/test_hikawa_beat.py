"""The pace of a Hikawa: reports of its runs decide when the next one reads the clock."""

from itertools import pairwise
from random import Random
from statistics import median
from typing import Any

import pytest

from tests.unit.roles.test_hikawa import INTERVAL, NOW, filters, hikawa, plan, status_of, words, zundoko


def paced(late_by: int, lead: int | None, saying: int = 0, said: int = 0) -> dict[str, Any]:
    """Return a Hikawa at whose next word a run that looks at the clock at NOW is late by so much."""
    timing = {"sayingMillis": saying} | ({} if lead is None else {"leadMillis": lead})
    obj = hikawa(NOW - INTERVAL - late_by + filters._allowance(timing, said, INTERVAL), numZundokos=9)
    obj["status"] |= {"timing": timing, "numZundokosSaid": said}
    return obj


def report(obj: dict[str, Any], took: int = 9) -> dict[str, Any]:
    """Return the report of a run with one word that reads the clock at NOW and takes this number of milliseconds."""
    result: dict[str, Any] = filters.report(plan([zundoko(1, 0)], obj), obj, NOW + took)
    return result


def test_the_first_late_word_teaches_most_of_the_lead() -> None:
    assert report(paced(160, None))["timing"]["leadMillis"] == 120


def test_a_run_before_any_word_was_due_teaches_no_lead() -> None:
    assert report(hikawa(None))["timing"] == {}


def test_a_run_that_came_too_early_shortens_the_lead_at_once_and_says_nothing() -> None:
    result = report(paced(-20, 150))
    assert result["timing"]["wasEarly"]
    assert result["timing"]["leadMillis"] == 150 - 20 - filters.MARGIN_MILLIS
    assert (result["num_zundokos_said"], result["next_run_at_millis"]) == (1, NOW + 20 - 122)


@pytest.mark.parametrize(("said", "lead"), [(1, 176), (6, 160), (14, 155), (99, 155)])
def test_late_runs_lengthen_the_lead_the_more_slowly_the_more_words_were_said(said: int, lead: int) -> None:
    assert report(paced(filters.MARGIN_MILLIS + 80, 150, said=said))["timing"]["leadMillis"] == lead


def test_the_run_after_an_early_one_is_late_and_teaches_nothing() -> None:
    obj = paced(200, 150)
    obj["status"]["timing"]["wasEarly"] = True
    assert report(obj)["timing"] == {"leadMillis": 150, "sayingMillis": 0, "wasEarly": False}


def test_a_run_that_something_else_brought_long_before_teaches_nothing() -> None:
    assert report(paced(-200, 150))["timing"]["leadMillis"] == 150


def test_a_pause_of_hours_lengthens_the_lead_by_little() -> None:
    assert report(paced(600_000, 150, said=40))["timing"]["leadMillis"] == 150 + INTERVAL // 16


@pytest.mark.parametrize("late_by", [0, -480])
def test_the_lead_is_never_below_nothing_nor_above_the_interval(late_by: int) -> None:
    assert 0 <= report(paced(late_by, INTERVAL))["timing"]["leadMillis"] <= INTERVAL
    assert report(paced(9_999, INTERVAL))["timing"]["leadMillis"] == INTERVAL


def test_the_next_run_is_asked_for_a_lead_before_its_word_is_due() -> None:
    obj = paced(filters.MARGIN_MILLIS, 150, saying=100, said=4)
    assert report(obj, took=130)["next_run_at_millis"] == NOW + 130 + INTERVAL - 100 * 2 // 3 - 150


@pytest.mark.parametrize(("took", "least"), [(130, 100), (70, 70)])
def test_the_shortest_time_that_a_word_took_is_remembered(took: int, least: int) -> None:
    assert report(paced(8, 150, saying=100, said=4), took)["timing"]["sayingMillis"] == least


def test_a_clock_that_was_set_back_while_a_word_was_said_leaves_no_negative_time() -> None:
    assert report(paced(8, 150), took=-3000)["timing"]["sayingMillis"] == 0


@pytest.mark.parametrize(("saying", "said", "allowance"), [(100, 0, 0), (100, 1, 50), (100, 9, 90), (9_999, 9, 125)])
def test_allowance_for_saying_grows_with_the_said_words(saying: int, said: int, allowance: int) -> None:
    obj = hikawa(NOW - INTERVAL + allowance, numZundokos=2)
    obj["status"] |= {"timing": {"sayingMillis": saying}, "numZundokosSaid": said}
    assert plan(words(1), obj)["say"]
    assert not plan(words(1), obj, NOW - 1)["say"]


def test_a_word_that_no_run_has_reported_is_waited_for_a_whole_interval() -> None:
    obj = paced(0, 150, saying=100, said=4)
    result = plan([zundoko(1, 0), zundoko(2, obj["status"]["lastSaidAtMillis"] + 1)], obj)
    assert (result["say"], result["due_at_millis"]) == (None, NOW + INTERVAL)
    obj["status"] |= status_of(filters.report(result, obj, NOW + 9))
    assert plan(words(1, 2), obj, NOW + 30)["due_at_millis"] == NOW + INTERVAL


class Singer:
    """Sings with runs whose parts take uneven times; keeps the times of the creations and counts the runs."""

    def __init__(self, seed: int, start: tuple[int, int], tail: int) -> None:
        self._random, self._start, self._tail = Random(seed), start, tail  # noqa: S311 - reproducible
        self.obj = hikawa(None, numZundokos=100)
        self.said: list[int] = []
        self.runs = 0

    def sing(self, count: int) -> None:
        """Go on until so many words are said, with the status from run to run as the operator keeps it."""
        now, exist = NOW, [zundoko(number, say="Zun") for number in range(1, len(self.said) + 1)]
        while len(self.said) < count:
            self.runs += 1
            now += self._random.randint(*self._start)
            result = plan(exist, self.obj, now)
            if result["say"]:
                self.said.append(now + self._random.randint(50, 60))
                exist.append(zundoko(len(self.said), now + 20))
                now = self.said[-1] + self._random.randint(45, 55)
            reported = filters.report(result, self.obj, now)
            self.obj["status"] = status_of(reported)
            now = max(now + self._tail, reported["next_run_at_millis"])

    @property
    def gaps(self) -> list[int]:
        """The times between two words."""
        return [later - earlier for earlier, later in pairwise(self.said)]


@pytest.mark.parametrize("seed", range(20))
def test_warm_runs_of_uneven_length_keep_the_beat_with_about_a_run_for_each_word(seed: int) -> None:
    singer = Singer(seed, start=(130, 160), tail=100)
    singer.sing(40)
    assert 0.9 * INTERVAL <= median(singer.gaps) <= 1.1 * INTERVAL
    assert min(singer.gaps) >= INTERVAL - 10
    assert singer.runs <= 40 + 1 + 3


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_take_longer_than_the_interval_follow_each_other_at_once(seed: int) -> None:
    singer = Singer(seed, start=(900, 1000), tail=300)
    singer.sing(20)
    assert max(singer.gaps[5:]) <= 1000 + 60 + 55 + 300
    assert singer.runs == 20 + 1
