"""Anything that JSON can say, for tests that throw it at code which takes what people write into objects."""

from typing import Any

from hypothesis import strategies as st

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)

CONDITION: st.SearchStrategy[Any] = JSON | st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Running", "Successful", "Failure", "Paused", "Custom"]) | JSON,
        "status": st.sampled_from(["True", "False", "Unknown"]) | JSON,
        "lastTransitionTime": st.just("2026-01-01T12:00:00Z") | JSON,
        "ansibleResult": st.fixed_dictionaries({"completion": st.text() | st.datetimes().map(str) | JSON}) | JSON,
    },
)

STATUS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.text(), JSON, max_size=3) | st.fixed_dictionaries(
    {"conditions": st.lists(CONDITION, max_size=5) | JSON, "observedGeneration": st.integers() | JSON, "mine": JSON}
)
