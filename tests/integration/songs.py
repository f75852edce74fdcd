"""Songs of Hikawas whose every word is known before it is sung: they come from seeds and have at most eight words."""

import functools
import importlib.util
import itertools
from collections.abc import Iterator
from types import ModuleType

from rolecall.kube.metadata import metadata_of, owner_references_of
from tests.integration.operators import PROJECT
from tests.support.world import ZUNDOKO, World

END = ["Zun", "Zun", "Zun", "Zun", "Doko"]


def word(number: int, seed: str) -> str:
    """Return the word with this number in the song of a seed, as the role says it."""
    said: str = _filters().word(number, seed)
    return said


@functools.cache
def _filters() -> ModuleType:
    path = PROJECT / "roles" / "hikawa" / "filter_plugins" / "hikawa.py"
    spec = importlib.util.spec_from_file_location("hikawa_filters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def song(seed: str, least: int = 0) -> list[str]:
    """Return the words of a seed, judged from the given number of words on; nine of them for a longer song."""
    words: list[str] = []
    while not (len(words) >= least and words[-5:] == END):
        words.append(word(len(words) + 1, seed))
        if len(words) > 8:
            break
    return words


def seeds(length: int) -> Iterator[str]:
    """Yield seeds whose songs have this many words."""
    return (seed for number in itertools.count() if len(song(seed := f"seed-{number}")) == length)


def manifest(name: str, seed: str, **spec: object) -> str:
    """Return a Hikawa that sings the song of a seed."""
    fields = "".join(f"\n  {key}: {str(value).lower()}" for key, value in spec.items())
    return f"""
apiVersion: zundokokiyoshi.kaitoy.github.com/v1beta1
kind: Hikawa
metadata:
  name: {name}
  annotations: {{zundokokiyoshi.kaitoy.github.com/seed: {seed}}}
spec:{fields}
"""


async def words(world: World, name: str) -> dict[str, str]:
    """Return the words that a Hikawa has said, by name."""
    zundokos = await world.objects(ZUNDOKO)
    return {
        str(metadata_of(obj)["name"]): str(obj["spec"]["say"])
        for obj in zundokos
        if any(owner.name == name for owner in owner_references_of(obj))
    }


def expected(name: str, said: list[str]) -> dict[str, str]:
    """Return the words of a song, by the names of their Zundokos."""
    return {f"{name}-zundoko-{number:03d}": word for number, word in enumerate(said, 1)}
