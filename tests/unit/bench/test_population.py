from pathlib import Path

from bench.population import Plays


def test_first_start_and_last_of_each_object_are_known_and_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "plays"
    path.touch()
    with path.open("rb") as read, path.open("ab", buffering=0) as written:
        plays = Plays(read)
        written.write(b"1000000000 ns/a\n2000000000 ns/b\n")
        assert plays.read().last == {"ns/a": 1.0, "ns/b": 2.0}
        written.write(b"3500000000 ns/a\n")
        plays.read()
    assert (plays.first, plays.last, plays.count) == (1.0, {"ns/a": 3.5, "ns/b": 2.0}, 3)
