import itertools

from tests.chaos.plan import GROUPS, Plan, counted, timed


def _names(plan: Plan, most: int = 1000) -> list[list[str]]:
    return [[each.name for each in itertools.islice(drawn, most)] for _, drawn in plan.sections()]


def test_each_fault_of_a_counted_group_happens_so_often() -> None:
    (names,) = _names(counted(1, {"kills": 3}))
    assert sorted(names) == sorted(3 * [each.name for each in GROUPS["kills"]])


def test_a_seed_draws_the_same_again_and_another_one_does_not() -> None:
    assert _names(counted(1, {"kills": 9, "leaders": 9})) == _names(counted(1, {"kills": 9, "leaders": 9}))
    assert _names(counted(1, {"kills": 9})) != _names(counted(2, {"kills": 9}))


def test_draws_of_a_fault_do_not_depend_on_what_came_before() -> None:
    plan = counted(1, {"kills": 1})
    plan.chance(1).random()
    assert plan.chance(2).random() == counted(1, {"stops": 5}).chance(2).random()
    assert plan.chance(1).random() != plan.chance(2).random()


def test_with_a_time_everything_happens_again_and_again_until_it_is_over() -> None:
    alone, pair, trio = _names(timed(1, seconds=1000), most=100)
    assert len(alone) == len(pair) == len(trio) == 100
    assert _names(timed(1, seconds=-1)) == [[], [], []]


def test_faults_of_several_replicas_need_a_scene_of_their_own() -> None:
    counts = {"kills": 1, "leaders": 1, "shards": 1}
    assert [replicas for replicas, _ in counted(1, counts).sections()] == [1, 2, 3]
    assert [replicas for replicas, _ in counted(1, {"leaders": 1}).sections()] == [2]


def test_only_chooses_by_a_part_of_the_name() -> None:
    (names,) = _names(counted(1, {"kills": 1, "stops": 1}, "module"))
    assert sorted(names) == ["module: SIGKILL", "module: SIGSTOP for a while"]


def test_names_are_unique() -> None:
    names = [each.name for members in GROUPS.values() for each in members]
    assert len(names) == len(set(names))
