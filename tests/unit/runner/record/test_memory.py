from rolecall.kube.references import ObjectKey
from rolecall.runner.record.document import Surroundings, document_of
from rolecall.runner.record.recorder import RecordMemory
from rolecall.runner.record.run_record import Bodies
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record

LONG = config_map("".join(f"{number:x}" for number in range(5000)))


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def test_the_last_record_of_an_object_replaces_the_one_before() -> None:
    memory = RecordMemory(1 << 20)
    first, second = (make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies) for _ in range(2))
    memory.add(first)
    taken = memory.bodies.stored_bytes
    memory.add(second)
    assert memory.get(DEMO, key("one")) is second
    assert memory.bodies.stored_bytes == taken


def test_records_stay_within_the_budget_and_the_oldest_go_first() -> None:
    memory = RecordMemory(8000)
    for name in "abcd":
        memory.add(make_record(name=name, bodies=memory.bodies))
    kept = [name for name in "abcd" if memory.get(DEMO, key(name))]
    assert kept == ["b", "c", "d"]


def test_a_record_larger_than_the_budget_is_not_kept_and_leaves_nothing() -> None:
    memory = RecordMemory(1000)
    memory.add(make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies))
    assert memory.get(DEMO, key("one")) is None
    assert memory.bodies.stored_bytes == 0


def test_an_object_that_is_gone_leaves_nothing() -> None:
    memory = RecordMemory(1 << 20)
    memory.add(make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies))
    memory.forget(DEMO, key("one"))
    assert (memory.get(DEMO, key("one")), memory.bodies.stored_bytes) == (None, 0)


def test_equal_bodies_are_stored_once_and_compressed() -> None:
    bodies = Bodies()
    text = b"the same list again " * 1000
    assert bodies.add(text) == bodies.add(text)
    assert bodies.stored_bytes < len(text) / 10
    bodies.drop(digest := bodies.add(text))
    assert bodies.get(digest) == text


def test_a_run_that_needs_more_room_is_recorded_without_further_bodies() -> None:
    record = make_record(*[exchange("GET", f"{CONFIG_MAPS}/{number}", None, LONG) for number in range(3)], room=1000)
    assert [kept.answer for kept in record.exchanges] == [None, None, None]
    assert not record.is_complete


def test_several_records_of_an_object_are_kept_if_somebody_looks() -> None:
    memory = RecordMemory(1 << 20, most_runs=2)
    records = [make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies) for _ in range(3)]
    for number, record in enumerate(records):
        record.ident = str(number)
        memory.add(record)
    assert [record.ident for record in memory.runs(DEMO, key("one"))] == ["1", "2"]
    memory.forget(DEMO, key("one"))
    assert memory.bodies.stored_bytes == 0


def test_earlier_records_go_before_the_last_record_of_any_object() -> None:
    memory = RecordMemory(8000, most_runs=9)
    for ident, name in enumerate("abbbb"):
        record = make_record(name=name, bodies=memory.bodies)
        record.ident = str(ident)
        memory.add(record)
    assert memory.get(DEMO, key("a")) is not None
    assert [record.ident for record in memory.runs(DEMO, key("b"))] == ["3", "4"]


def test_a_snapshot_stays_whole_when_its_record_is_dropped() -> None:
    memory = RecordMemory(1 << 20)
    record = make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies)
    memory.add(record)
    snapshot = record.snapshot()
    before = document_of(record, Surroundings()).text
    memory.forget(DEMO, key("one"))
    assert memory.bodies.stored_bytes == 0
    assert document_of(snapshot, Surroundings()).text == before
