"""New files, and new texts of files that are there, written all or not at all.

What stands in the way is found before anything is written: a new file never takes the place of one that exists, and
everything that does is named at once. When writing itself fails, what was written is taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rolecall.scaffold.errors import ScaffoldError


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """What is to be written below a folder: texts by paths relative to it."""

    folder: Path
    created: dict[str, str]
    extended: dict[str, str]

    def write(self) -> None:
        """Write everything.

        Raises ScaffoldError when files stand in the way or cannot be written; then nothing has changed.
        """
        try:
            in_the_way = list(self._in_the_way())
            before = {path: (self.folder / path).read_bytes() for path in self.extended}
        except OSError as error:
            raise ScaffoldError(f"{error}. Nothing was written.") from error
        if in_the_way:
            listed = "\n  ".join(in_the_way)
            raise ScaffoldError(f"{self.folder}: found, and never overwritten:\n  {listed}\nNothing was written.")
        self._write(before)

    def _write(self, before: dict[str, bytes]) -> None:
        done: list[Path] = []
        try:
            for path, text in self.created.items():
                self._create(self.folder / path, text, done)
            for path, text in self.extended.items():
                (self.folder / path).write_text(text, encoding="utf-8")
        except OSError as error:
            self._take_back(done, before)
            raise ScaffoldError(f"{error}. Nothing was written.") from error

    def _in_the_way(self) -> Iterator[str]:
        for path in sorted(self.created):
            target = self.folder / path
            file_above = next((above for above in target.parents if above.exists() and not above.is_dir()), None)
            if file_above is not None:
                yield f"{file_above} (expected a folder)"
            elif target.exists() or target.is_symlink():
                yield path

    def _create(self, target: Path, text: str, done: list[Path]) -> None:
        for folder in reversed([target.parent, *target.parent.parents]):
            if not folder.exists():
                folder.mkdir()
                done.append(folder)
        with target.open("x", encoding="utf-8") as file:
            done.append(target)
            file.write(text)

    def _take_back(self, done: list[Path], before: dict[str, bytes]) -> None:
        for path, text in before.items():
            (self.folder / path).write_bytes(text)
        for made in reversed(done):
            if made.is_dir():
                made.rmdir()
            else:
                made.unlink()
