"""The page of variables and annotations lists those that the code knows, and no others."""

import re

from tests.unit.docs.pages import PROJECT

PAGE = (PROJECT / "docs/reference/environment-and-annotations.md").read_text()
SOURCES = [path.read_text() for path in sorted((PROJECT / "src/rolecall").rglob("*.py"))]
ANNOTATION = r"(?:rolecall\.dev|operator-sdk|ansible\.sdk\.operatorframework\.io)/[a-z-]+"
VARIABLES = (
    r'environ(?:ment)?(?:\.get\(|\[)"([A-Z][A-Z0-9_]+)"',
    r'"([A-Z][A-Z0-9_]+)" (?:not )?in (?:os\.)?environ',
    r'^[A-Z_]*VARIABLE = "([A-Z][A-Z0-9_]+)"',
)
UNDOCUMENTED = {
    "ANSIBLE_CONFIG",  # Ansible's own, and documented there
    "ANSIBLE_HOME",  # as above
    "HOME",
    "KUBERNETES_SERVICE_HOST",  # what a pod has
    "ROLECALL_NON",  # room in the environment of a process for its title
}


def in_sources(pattern: str) -> set[str]:
    """Return the matches of a pattern in the package."""
    return {found for text in SOURCES for found in re.findall(pattern, text, re.MULTILINE)}


def test_the_page_lists_exactly_the_annotations_that_the_code_has() -> None:
    assert set(re.findall(rf"^\| `({ANNOTATION})", PAGE, re.MULTILINE)) == in_sources(rf'"({ANNOTATION})"')


def test_the_page_lists_every_variable_that_the_code_reads() -> None:
    listed = {
        name for row in re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    read = {name for pattern in VARIABLES for name in in_sources(pattern)}
    assert {"WATCH_NAMESPACE", "ROLECALL_STATE_DIR", "NO_COLOR"} <= read
    assert read - UNDOCUMENTED - listed == set()
