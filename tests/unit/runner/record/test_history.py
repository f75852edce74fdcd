from rolecall.kube.references import ObjectKey
from rolecall.runner.record.recorder import MOST_RUNS, RunHistory
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import make_record


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def add(history: RunHistory, *idents: str, name: str = "one") -> None:
    for ident in idents:
        record = make_record(name=name)
        record.ident = ident
        history.add(record)


def idents(history: RunHistory, name: str = "one") -> list[str]:
    return [line.ident for line in history.of(DEMO, key(name))]


def test_a_line_says_when_how_long_why_and_how_it_ended() -> None:
    history = RunHistory()
    record = make_record()
    history.add(record)
    line = history.last(DEMO, key("one"))
    assert line is not None
    assert (line.started, line.seconds, line.outcome) == (record.started.timestamp(), 0.25, "succeeded")
    assert (line.causes, line.tasks, line.requests) == (("something changed",), 1, 0)


def test_the_newest_lines_of_an_object_come_first_and_are_bounded() -> None:
    history = RunHistory()
    add(history, *map(str, range(MOST_RUNS + 2)))
    assert idents(history) == [str(number) for number in reversed(range(2, MOST_RUNS + 2))]


def test_the_last_line_of_an_object_stays_whatever_happens_to_others() -> None:
    history = RunHistory(most_earlier=3)
    add(history, "a", name="quiet")
    add(history, *"bcdefgh", name="busy")
    assert idents(history, "quiet") == ["a"]
    assert idents(history, "busy") == ["h", "g", "f", "e"]


def test_an_object_that_is_gone_has_no_lines() -> None:
    history = RunHistory()
    add(history, "1")
    history.forget(DEMO, key("one"))
    assert (history.last(DEMO, key("one")), idents(history)) == (None, [])
