import pytest
from tools.docs.watch_keys import keys_block


def rows(name: str) -> set[str]:
    """Return the lines of a table."""
    return set(keys_block(name).splitlines())


def test_a_row_has_key_type_default_and_meaning() -> None:
    assert "| `version` | string | required | the API version |" in rows("entry")
    meaning = "whether a change of the object's annotations triggers a reconcile"
    assert f"| `watchAnnotationsChanges` | boolean | `false` | {meaning} |" in rows("entry")


def test_keys_that_the_go_runner_does_not_have_are_marked() -> None:
    marked = {line.split("`")[1] for line in rows("entry") if "` * |" in line}
    assert marked == {
        "allowVariables",
        "ready",
        "readyConditions",
        "sensitive",
        "stalledAfter",
        "status",
        "timeout",
        "triggers",
        "variables",
        "watchReads",
    }


def test_a_table_that_is_not_there_is_told_of() -> None:
    with pytest.raises(
        LookupError, match="expected one of entry, selector, matchExpressions, blacklist, finalizer, triggers"
    ):
        keys_block("song")
