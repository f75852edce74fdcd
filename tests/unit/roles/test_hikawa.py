from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.roles.loading import load_filters

filters = load_filters("hikawa")

SEED = "encore"
SONG = ["Doko", "Doko", "Zun", "Zun", "Zun", "Zun", "Doko"]
NOW = 1_000_000
INTERVAL = 500
LONG_AGO = NOW - 10 * INTERVAL


def hikawa(said_at: int | None = LONG_AGO, **spec: Any) -> dict[str, Any]:
    status = {} if said_at is None else {"status": {"lastSaidAtMillis": said_at}}
    return {"metadata": {"name": "h", "uid": "me"}, "spec": {"intervalMillis": INTERVAL, **spec}, **status}


def zundoko(number: int, said_at: int = LONG_AGO, owner: str | None = "me", say: str | None = None) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True}] if owner else None
    return {
        "metadata": {
            "name": f"h-zundoko-{number:03d}",
            "annotations": {filters.SAID_AT: str(said_at)},
            "ownerReferences": references,
        },
        "spec": {"say": say or filters.word(number, SEED)},
    }


def words(*numbers: int) -> list[dict[str, Any]]:
    return [zundoko(number) for number in numbers]


def plan(zundokos: list[dict[str, Any]], obj: dict[str, Any], now: int = NOW) -> dict[str, Any]:
    result: dict[str, Any] = filters.plan(zundokos, obj, SEED, now)
    return result


def test_a_song_is_a_function_of_its_seed() -> None:
    assert [filters.word(number, SEED) for number in range(1, 8)] == SONG
    assert [filters.word(number, "kyoto") for number in range(1, 8)] != SONG


@given(st.integers(min_value=1), st.text())
def test_every_word_is_zun_or_doko(number: int, seed: str) -> None:
    assert filters.word(number, seed) in {"Zun", "Doko"}


def test_words_are_evenly_divided() -> None:
    zuns = sum(filters.word(number, "many") == "Zun" for number in range(10_000))
    assert 4800 < zuns < 5200


@pytest.mark.parametrize(
    ("sung", "over"),
    [
        (SONG, True),
        (SONG[2:], True),
        (SONG[:-1], False),
        (SONG[3:], False),
        ([*SONG, "Zun"], False),
        ([], False),
    ],
)
def test_the_song_is_over_after_four_zun_and_a_doko(sung: list[str], over: bool) -> None:  # noqa: FBT001
    assert filters.is_over(sung) is over


def test_the_first_run_asks_for_the_first_word_and_comes_back_after_an_interval() -> None:
    result = plan([], hikawa(None))
    assert (result["say"], result["spec"], result["due_at_millis"]) == (None, {"numZundokos": 1}, NOW + INTERVAL)
    assert result["is_waiting"]


def test_a_word_is_said_when_it_is_due_and_the_next_one_is_asked_for() -> None:
    result = plan(words(1), hikawa(NOW - INTERVAL, numZundokos=2))
    assert result["say"] == {"name": "h-zundoko-002", "word": "Doko"}
    assert result["spec"] == {"numZundokos": 3}
    assert result["num_zundokos_said"] == 2


def test_a_word_is_not_said_a_millisecond_too_early() -> None:
    result = plan(words(1), hikawa(NOW - INTERVAL + 1, numZundokos=2))
    assert (result["say"], result["spec"], result["num_zundokos_said"]) == (None, {}, 1)
    assert (result["due_at_millis"], result["is_waiting"]) == (NOW + 1, True)


def test_without_an_interval_a_word_is_said_at_once() -> None:
    obj = hikawa(None, numZundokos=1)
    obj["spec"]["intervalMillis"] = 0
    assert plan([], obj)["say"] == {"name": "h-zundoko-001", "word": "Doko"}


def test_a_word_that_no_run_has_reported_counts_as_said_just_now() -> None:
    result = plan([zundoko(1, LONG_AGO + 1)], hikawa(LONG_AGO, numZundokos=2))
    assert (result["say"], result["due_at_millis"]) == (None, NOW + INTERVAL)


def test_a_time_in_the_future_delays_the_song_by_an_interval_at_most() -> None:
    result = plan([zundoko(1, NOW + 99_999)], hikawa(NOW + 99_999, numZundokos=2))
    assert (result["due_at_millis"], result["is_waiting"]) == (NOW + INTERVAL, True)
    later = plan([zundoko(1, NOW + 99_999)], hikawa(NOW, numZundokos=2), NOW + INTERVAL)
    assert later["say"] == {"name": "h-zundoko-002", "word": "Doko"}


def test_a_deleted_word_is_said_again_under_its_number() -> None:
    result = plan(words(1, 3, 4), hikawa(numZundokos=5))
    assert result["say"] == {"name": "h-zundoko-002", "word": "Doko"}
    assert result["spec"] == {}


def test_a_deleted_word_is_said_again_although_the_count_was_lowered() -> None:
    assert plan(words(1, 3), hikawa(numZundokos=1))["say"]["name"] == "h-zundoko-002"


def test_nothing_is_judged_before_as_many_words_as_the_user_wants() -> None:
    result = plan(words(*range(1, 8)), hikawa(numZundokos=10))
    assert (result["say"]["name"], result["spec"]) == ("h-zundoko-008", {})


def test_the_last_right_word_asks_for_kiyoshi() -> None:
    result = plan(words(*range(1, 7)), hikawa(numZundokos=7))
    assert (result["say"]["word"], result["spec"]) == ("Doko", {"sayKiyoshi": True})
    assert (result["is_kiyoshi_due"], result["is_waiting"]) == (False, True)


def test_kiyoshi_comes_an_interval_after_the_last_word() -> None:
    sung = words(*range(1, 8))
    early = plan(sung, hikawa(NOW - INTERVAL + 1, numZundokos=7, sayKiyoshi=True))
    due = plan(sung, hikawa(NOW - INTERVAL, numZundokos=7, sayKiyoshi=True))
    assert (early["is_kiyoshi_due"], early["is_waiting"]) == (False, True)
    assert (due["is_kiyoshi_due"], due["is_waiting"], due["spec"]) == (True, False, {})


def test_a_user_gets_kiyoshi_without_the_pattern_but_after_the_words() -> None:
    waiting = plan(words(1), hikawa(numZundokos=2, sayKiyoshi=True))
    assert (waiting["say"]["name"], waiting["is_kiyoshi_due"], waiting["spec"]) == ("h-zundoko-002", False, {})
    assert plan(words(1, 2), hikawa(numZundokos=2, sayKiyoshi=True))["is_kiyoshi_due"]


def test_numbers_beyond_999_are_in_numeric_order() -> None:
    result = plan(words(*range(1, 1000)), hikawa(numZundokos=1000))
    assert result["say"]["name"] == "h-zundoko-1000"


def test_words_of_another_hikawa_are_not_counted() -> None:
    other = zundoko(1, owner="other")
    other["metadata"]["name"] = "other-zundoko-001"
    assert plan([other], hikawa(numZundokos=1))["say"]["name"] == "h-zundoko-001"


@pytest.mark.parametrize("owner", ["other", None])
def test_a_zundoko_of_somebody_else_blocks_its_number(owner: str | None) -> None:
    result = plan([zundoko(1, owner=owner)], hikawa(numZundokos=1))
    assert (result["say"], result["blocked_by"], result["spec"]) == (None, "h-zundoko-001", {})


def test_a_word_on_its_way_out_is_waited_for_without_a_requeue() -> None:
    leaving = zundoko(1)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    result = plan([leaving], hikawa(numZundokos=1))
    assert (result["say"], result["blocked_by"], result["is_waiting"]) == (None, None, False)


def sing(kills: frozenset[int], removals: dict[int, int], **spec: Any) -> tuple[list[tuple[int, str, int]], int]:
    """Run the whole state machine; give the words as they came (number, word, time) and the time of Kiyoshi.

    After the runs in `kills` nothing is reported, and after other runs in `removals` a word is deleted. A word that is
    deleted before any run has seen it leaves no trace; only in this case, its time is unknown.
    """
    obj, now = hikawa(None, **spec), NOW
    said: list[tuple[int, str, int]] = []
    exist: dict[int, dict[str, Any]] = {}
    for run in range(200):
        result = plan(list(exist.values()), obj, now)
        if result["is_kiyoshi_due"]:
            return said, now + 7
        reported = filters.report(result, obj, now + 9)
        if result["say"]:
            number = int(result["say"]["name"].rsplit("-", 1)[1])
            assert number not in exist
            exist[number] = zundoko(number, now + 3, say=result["say"]["word"])
            said.append((number, result["say"]["word"], now + 7))
        now += 20
        if run not in kills:
            obj["spec"] |= result["spec"]
            obj["status"] = status_of(reported)
            now = max(now, reported["next_run_at_millis"] + 15)
            exist.pop(removals.get(run, 0), None)
    pytest.fail("the song does not end")


def status_of(reported: dict[str, Any]) -> dict[str, Any]:
    """Return the status that watches.yaml makes of what a run reports."""
    return {
        "numZundokosSaid": reported["num_zundokos_said"],
        "lastSaidAtMillis": reported["last_said_at_millis"],
        "timing": reported["timing"],
    }


@given(st.frozensets(st.integers(0, 30)), st.dictionaries(st.integers(0, 20), st.integers(1, 7), max_size=5))
def test_whatever_happens_the_song_has_its_words_and_its_intervals(
    kills: frozenset[int], removals: dict[int, int]
) -> None:
    said, kiyoshi_at = sing(kills, removals)
    assert {number: word for number, word, _ in said} == dict(enumerate(SONG, 1))
    times = [time for _, _, time in said]
    assert all(later - earlier >= INTERVAL for earlier, later in pairwise(times))
    assert kiyoshi_at - times[-1] >= INTERVAL


def test_an_undisturbed_song_says_each_word_once() -> None:
    said, _ = sing(frozenset(), {})
    assert [word for _, word, _ in said] == SONG


def test_a_user_who_wants_ten_words_hears_ten_before_the_judgement() -> None:
    said, _ = sing(frozenset(), {}, numZundokos=10, sayKiyoshi=True)
    assert [number for number, _, _ in said] == list(range(1, 11))


def test_ansible_finds_the_filters() -> None:
    assert set(filters.FilterModule().filters()) == {"hikawa_word", "hikawa_is_over", "hikawa_plan", "hikawa_report"}
