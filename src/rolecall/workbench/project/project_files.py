"""Writes new files and changed files of a project, all of them or none.

Conflicts are found before anything is written: a new file never replaces an existing one, and all conflicts are
reported at once. If writing fails, the files that were written are removed or restored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rolecall.workbench.project.errors import ScaffoldError


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The files to create and the files to extend below a directory: texts by relative path."""

    directory: Path
    created: dict[str, str]
    extended: dict[str, str]

    def write(self) -> None:
        """Write all files.

        Raise ScaffoldError if files are in the way or cannot be written; then nothing has changed.
        """
        try:
            conflicts = list(self._conflicts())
            before = {path: (self.directory / path).read_bytes() for path in self.extended}
        except OSError as error:
            raise ScaffoldError(f"{error}. Nothing was written.") from error
        if conflicts:
            listed = "\n  ".join(conflicts)
            raise ScaffoldError(
                f"{self.directory}: these files exist and are never overwritten:\n  {listed}\nNothing was written."
            )
        self._write(before)

    def _write(self, before: dict[str, bytes]) -> None:
        done: list[Path] = []
        try:
            for path, text in self.created.items():
                self._create(self.directory / path, text, done)
            for path, text in self.extended.items():
                (self.directory / path).write_text(text, encoding="utf-8")
        except OSError as error:
            self._roll_back(done, before)
            raise ScaffoldError(f"{error}. Nothing was written.") from error

    def _conflicts(self) -> Iterator[str]:
        for path in sorted(self.created):
            target = self.directory / path
            file_above = next((above for above in target.parents if above.exists() and not above.is_dir()), None)
            if file_above is not None:
                yield f"{file_above} (expected a directory)"
            elif target.exists() or target.is_symlink():
                yield path

    def _create(self, target: Path, text: str, done: list[Path]) -> None:
        for directory in reversed([target.parent, *target.parent.parents]):
            if not directory.exists():
                directory.mkdir()
                done.append(directory)
        with target.open("x", encoding="utf-8") as file:
            done.append(target)
            file.write(text)

    def _roll_back(self, done: list[Path], before: dict[str, bytes]) -> None:
        for path, text in before.items():
            (self.directory / path).write_bytes(text)
        for made in reversed(done):
            if made.is_dir():
                made.rmdir()
            else:
                made.unlink()
