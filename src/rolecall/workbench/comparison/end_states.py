"""Compares the end state of an interrupted trial with those of two uninterrupted runs.

They are the same if they are equal up to a consistent renaming of the values that differ between the uninterrupted
runs, and except for times, which are compared by their distance from the start. An object whose name differs, or was
generated, is paired by its content.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, SECRET, ObjectKey, RawObject
from rolecall.workbench.comparison.clocks import Clocks, is_number
from rolecall.workbench.comparison.masks import SENSITIVE
from rolecall.workbench.comparison.variables import (
    Bindings,
    Path,
    Template,
    Variables,
    leaves,
    shapes_that_differ,
    text_of,
)

_ABSENT: Final = object()
_EVENTS: Final = "events"
_VALUES: Final = frozenset({"data", "stringData"})


@dataclass(frozen=True, slots=True)
class ObjectId:
    """An object in the URL of a request; an object in a Secret's resource is a Secret."""

    group: str
    version: str
    plural: str
    key: ObjectKey

    @property
    def is_event(self) -> bool:
        """Whether it is an Event, which every run may create or count."""
        return self.plural == _EVENTS


@dataclass(frozen=True, slots=True)
class EndObject:
    """An object of an end state; the values of a Secret are decoded."""

    gvk: GVK
    key: ObjectKey
    content: RawObject

    @property
    def is_secret(self) -> bool:
        """Whether it is a Secret."""
        return (self.gvk.group, self.gvk.kind) == (SECRET.group, SECRET.kind)

    def secret_texts(self) -> Iterator[str]:
        """Yield the values of a Secret that must not be displayed."""
        for _, value in leaves(self.content.get("data") or {}, frozenset()) if self.is_secret else ():
            yield text_of(value)

    @property
    def title(self) -> str:
        """The kind and the key."""
        return f"{self.gvk.kind} {self.key}"


EndState = dict[ObjectId, EndObject]


@dataclass(frozen=True, slots=True)
class Difference:
    """What an interruption left different in one object: the whole object, or the value at a path.

    ``expected`` and ``found`` are displayed texts, empty for a value that does not exist.
    """

    subject: str
    path: str = ""
    expected: str = ""
    found: str = ""


@dataclass(slots=True)
class Baseline:
    """The end states of two uninterrupted runs, and the clocks that decide whether their values differ only in time.

    ``unstable`` names the objects that exist after only one of them, which are not compared.
    """

    one: EndState
    two: EndState
    clocks: Clocks
    unstable: list[str] = field(default_factory=list)
    _opaque: dict[ObjectId, frozenset[Path]] = field(default_factory=dict)
    _templates: dict[tuple[ObjectId, Path], Template] = field(default_factory=dict)
    _renamed: dict[ObjectId, None] = field(default_factory=dict)
    """The objects of the first run whose names are generated, or differ."""

    def __post_init__(self) -> None:
        """Pair the objects of the runs, and find the values that differ."""
        pairs = {ident: ident for ident, each in self.one.items() if ident in self.two and not _prefix(each)}
        rest = [ident for ident in self.two if ident not in pairs]
        for ident in [each for each in self.one if each not in pairs]:
            candidates = [each for each in rest if _family(each, self.two[each]) == _family(ident, self.one[ident])]
            if not candidates:
                self.unstable.append(self.one[ident].title)
                continue
            pairs[ident] = min(candidates, key=lambda each: _distance(self.one[ident], self.two[each]))
            rest.remove(pairs[ident])
            self._renamed[ident] = None
        self.unstable += [self.two[ident].title for ident in rest]
        self._find_variables(pairs)

    def _find_variables(self, pairs: dict[ObjectId, ObjectId]) -> None:
        differing = []
        for first, second in pairs.items():
            one, two = self.one[first].content, self.two[second].content
            self._opaque[first] = frozenset(shapes_that_differ(one, two))
            values = dict(leaves(two, self._opaque[first]))
            for path, value in leaves(one, self._opaque[first]):
                if not _are_same(value, values[path], self.clocks):
                    differing.append((first, path, text_of(value), text_of(values[path])))
        variables = Variables()
        for ident, path, value, other in sorted(differing, key=lambda each: len(each[2])):
            self._templates[ident, path] = variables.add(value, other)

    def differences(self, end: EndState, clocks: Clocks, show: Callable[[str], str]) -> list[Difference]:
        """Return the differences of another end state; ``clocks`` are those of the first run and of the trial.

        ``show`` hides secrets in a text.
        """
        fixed = [ident for ident in self._opaque if ident not in self._renamed]
        rest = [ident for ident in end if ident not in fixed]
        pairs = [(ident, end[ident]) for ident in fixed if ident in end]
        found, bindings = self._compared(pairs, Bindings(), clocks, show)
        found += [Difference(self.one[ident].title, found="missing") for ident in fixed if ident not in end]
        for ident in self._renamed:
            family = _family(ident, self.one[ident])
            tries = [
                (*self._compared([(ident, end[each])], bindings, clocks, show), each)
                for each in rest
                if _family(each, end[each]) == family
            ]
            if not tries:
                found.append(Difference(f"{self.one[ident].title}, or one like it", found="missing"))
                continue
            differences, bindings, chosen = min(tries, key=lambda each: len(each[0]))
            found += differences
            rest.remove(chosen)
        found += [
            Difference(end[ident].title, found="additional") for ident in rest if end[ident].title not in self.unstable
        ]
        return found

    def _compared(
        self,
        pairs: Iterable[tuple[ObjectId, EndObject]],
        bindings: Bindings,
        clocks: Clocks,
        show: Callable[[str], str],
    ) -> tuple[list[Difference], Bindings]:
        """Return the differences between objects of the first run and their counterparts, and all bindings."""
        bindings = bindings.copy()
        found, with_variables = [], []
        for ident, other in pairs:
            opaque = self._opaque[ident]
            expected, values = dict(leaves(self.one[ident].content, opaque)), dict(leaves(other.content, opaque))
            for path in dict.fromkeys((*expected, *values)):
                pair = expected.get(path, _ABSENT), values.get(path, _ABSENT)
                template = self._templates.get((ident, path))
                if template is not None and pair[1] is not _ABSENT:
                    with_variables.append((template, other, path, *pair))
                elif not _are_same(*pair, clocks):
                    found.append(_difference(other, path, *pair, show))
        with_variables.sort(key=lambda each: len(each[0]))  # strings without other text first: they show the value
        for template, other, path, before, after in with_variables:
            where = bindings.bind(template, text_of(after), f"{other.title}: {path_text(path)}")
            if where:
                found.append(Difference(other.title, path_text(path), f"the value in {where}", "another value"))
            elif where is not None:
                found.append(_difference(other, path, before, after, show))
        return found, bindings


def _difference(obj: EndObject, path: Path, before: Any, after: Any, show: Callable[[str], str]) -> Difference:
    is_hidden = obj.is_secret and path[:1] and path[0] in _VALUES
    before, after = (
        "" if each is _ABSENT else SENSITIVE if is_hidden else show(text_of(each)) for each in (before, after)
    )
    if before == after:
        after = f"{after}, another one"
    return Difference(obj.title, path_text(path), before, after)


def path_text(path: Path) -> str:
    """Return a path as it is displayed."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _are_same(one: Any, two: Any, clocks: Clocks) -> bool:
    """Return whether two values are equal, or are times with the same meaning."""
    if type(one) is type(two) and one == two:
        return True
    if isinstance(one, str) and isinstance(two, str):
        return clocks.are_same_texts(one, two)
    return is_number(one) and is_number(two) and clocks.are_same_numbers(one, two)


def _prefix(obj: EndObject) -> str:
    return str(metadata_of(obj.content).get("generateName") or "")


def _family(ident: ObjectId, obj: EndObject) -> tuple[str, ...]:
    """Return the properties that an object shares with its possible counterparts."""
    return ident.group, ident.plural, ident.key.namespace, _prefix(obj)


def _distance(one: EndObject, two: EndObject) -> int:
    """Return in how many values two objects differ."""
    first, second = ({path: text_of(value) for path, value in leaves(each.content, frozenset())} for each in (one, two))
    return sum(first.get(path) != second.get(path) for path in first.keys() | second.keys())
