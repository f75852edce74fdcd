"""Changes of a function that change its fingerprint, and changes that don't."""

from pathlib import Path

import pytest

from rolecall.runner.warm.ansible_patches.fingerprints import (
    ABSENT,
    UNREADABLE,
    Fingerprints,
    digests_of,
    file_digest,
    source_of,
)

FUNCTION = 'class Play:\n    def run(self, host):\n        """Run."""\n        return host.name or [1, "a"]\n'
SAME = [
    "class Play:\n    def run(self, host):\n        return host.name or [1, 'a']  # as before\n",
    'class Play:\n    """A play."""\n\n    def run(\n        self, host\n    ): return (host.name or [1, "a"])\n',
    FUNCTION + "\n    def other(self):\n        pass\n",
]
DIFFERENT = [
    FUNCTION.replace("1", "2"),
    FUNCTION.replace("host)", "host, *, port=None)"),
    FUNCTION.replace("    def", "    @property\n    def"),
    FUNCTION.replace("    def", "    async def"),
    FUNCTION + "    run = None\n",
]
VERSION_DEPENDENT = '''
def run(self, *, limit: int | None = None, **rest: str) -> str:
    """Run."""
    words = [f"{word!r:>{limit}} and {word:} " "more" for word in rest if word not in {"a", b"b", 1.5, ..., None}]
    with open("x") as one, open("y"):
        text = words[1:2, -1] + f"{{}}{limit}" + u"text" + "\\u2028\\u0378"
    try:
        return lambda first, /, second=1: {**rest, "text": text}
    except (OSError, ValueError) as error:
        raise RuntimeError from error
'''
"""Syntax whose tree or whose ``ast.dump`` differs between Python 3.11 and 3.14."""


def digest(text: str, name: str = "Play.run") -> str:
    return digests_of(text.encode(), [name])[name]


@pytest.mark.parametrize("text", SAME)
def test_comments_docstrings_and_formatting_keep_a_fingerprint(text: str) -> None:
    assert digest(text) == digest(FUNCTION)


@pytest.mark.parametrize("text", DIFFERENT)
def test_changed_code_changes_a_fingerprint(text: str) -> None:
    assert digest(text) != digest(FUNCTION)


def test_fingerprint_is_the_same_on_every_python() -> None:
    """The constant was computed with Python 3.11; ``make test-matrix`` runs this test with all versions."""
    assert digest(VERSION_DEPENDENT, "run") == "a1b25c4453f108d6"


@pytest.mark.parametrize(
    ("before", "after"),
    [("from a import run", "from b import run"), ("run = 1", "run = 2"), ("run: int = 1", "run: str = 1")],
)
def test_imports_and_assignments_have_fingerprints(before: str, after: str) -> None:
    assert ABSENT != digest(before, "run") != digest(after, "run")


def test_definitions_in_conditions_belong_to_the_outer_scope() -> None:
    one = "try:\n    from a import run\nexcept ImportError:\n    def run(): pass\n"
    assert digest(one, "run") != digest(one.replace("pass", "return"), "run")


def test_missing_names_differ_from_unreadable_files() -> None:
    assert digest("", "run") == ABSENT
    assert digest("def run(:", "run") == UNREADABLE


def test_module_is_found_as_file_or_package_in_the_first_directory(tmp_path: Path) -> None:
    for directory, name in (("one", "pack/__init__.py"), ("two", "pack/__init__.py"), ("two", "pack/part.py")):
        file = tmp_path / directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {directory}")
    path = [str(tmp_path / name) for name in ("none", "one", "two")]
    assert (source_of("pack", path), source_of("pack.part", path)) == (b"# one", b"# two")
    assert source_of("pack.other", path) is None


def test_file_of_a_tested_release_needs_no_parsing(tmp_path: Path) -> None:
    source = b"def run(:  # no Python can parse this\n"
    (tmp_path / "module.py").write_bytes(source)
    known = Fingerprints({"module:run": {"1234": ["core 1"]}}, {"module": {file_digest(source): ["core 1"]}})
    assert known.releases_of(["module:run"], [str(tmp_path)]) == {"module:run": ("1234", ["core 1"])}
