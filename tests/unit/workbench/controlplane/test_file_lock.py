import threading
from pathlib import Path

from rolecall.workbench.controlplane.state import locked

DEADLINE_SECONDS = 90


def test_the_second_waits_and_hears_of_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waits, has_it = threading.Event(), threading.Event()

    def second() -> None:
        with locked(path, when_waiting=waits.set):
            has_it.set()

    thread = threading.Thread(target=second)
    with locked(path):
        thread.start()
        assert waits.wait(DEADLINE_SECONDS)
        assert not has_it.is_set()
    assert has_it.wait(DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)


def test_a_lock_that_removes_its_file_still_keeps_the_next_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    inside: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        for _ in range(50):
            with locked(path, remove=True):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert set(most) == {1}
    assert len(most) == 200
    assert not path.exists()


def test_missing_folders_are_made(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b" / "lock"):
        assert (tmp_path / "a" / "b" / "lock").exists()
