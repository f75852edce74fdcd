"""The addresses of the pages: which there are, and what a query string asks for."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from rolecall.runner.dashboard.views import Query, State

NO_NAMESPACE: Final = "-"
"""Stands for the namespace of a cluster-scoped object; no namespace is called so."""

_LONGEST: Final = 253
_SORTS: Final = ("name", "recent")
_MOST_DIGITS: Final = 6


def object_path(kind: str, namespace: str, name: str) -> str:
    """Return the path of an object's page."""
    return f"/kinds/{quote(kind, safe='')}/{quote(namespace or NO_NAMESPACE, safe='')}/{quote(name, safe='')}"


def run_path(kind: str, namespace: str, name: str, ident: str) -> str:
    """Return the path of a run's page."""
    return f"{object_path(kind, namespace, name)}/runs/{quote(ident, safe='')}"


def list_path(query: Query, **changes: str | int) -> str:
    """Return the path of a list; ``changes`` are other values for the fields of the query."""
    values = {
        "kind": query.kind,
        "namespace": query.namespace,
        "state": query.state,
        "q": query.text,
        "sort": "" if query.sort == "name" else query.sort,
        "page": "" if query.page == 1 else str(query.page),
    }
    values |= {name: str(value) for name, value in changes.items()}
    text = urlencode({name: value for name, value in values.items() if value})
    return f"/?{text}" if text else "/"


def query_of(values: Mapping[str, str]) -> Query:
    """Return what a query string asks for; what it says wrong counts as not said."""
    state, sort, page = (values.get(name, "") for name in ("state", "sort", "page"))
    is_number = page.isascii() and page.isdigit() and len(page) <= _MOST_DIGITS
    return Query(
        kind=values.get("kind", "")[:_LONGEST],
        namespace=values.get("namespace", "")[:_LONGEST],
        state=state if state in list(State) else "",
        text=values.get("q", "").strip()[:_LONGEST],
        sort=sort if sort in _SORTS else "name",
        page=max(1, int(page)) if is_number else 1,
    )
