from collections import Counter

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.election.membership import fnv1a_64, shard_of


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_the_hash_is_fnv_1a_with_64_bits(text: str, expected: int) -> None:
    assert fnv1a_64(text.encode()) == expected


def test_an_object_stays_in_its_shard_in_every_version_of_the_program() -> None:
    assert shard_of("example.com", "Thing", ObjectKey("default", "one"), 8) == 4
    assert shard_of("", "Ä", ObjectKey("", "größe"), 8) == 0


@pytest.mark.parametrize("count", [2, 3, 8, 12])
def test_names_that_differ_in_a_number_spread_evenly(count: int) -> None:
    keys = [ObjectKey("default", f"thing-{number}") for number in range(1000)]
    sizes = Counter(shard_of("example.com", "Thing", key, count) for key in keys)
    assert len(sizes) == count
    assert max(sizes.values()) < 1.3 * 1000 / count
