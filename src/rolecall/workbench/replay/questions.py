"""What a role has asked in a shadow and the record does not tell.

The shadow answered that such an object is not there, and lists without it.
"""

from collections.abc import Iterator
from typing import Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.record.reader import Line
from rolecall.workbench.plan.results import TaskName
from rolecall.workbench.replay.record_source import RecordSource
from rolecall.workbench.replay.recorded_objects import query_of
from rolecall.workbench.replay.results import Question
from rolecall.workbench.replay.run_lines import RunLines
from rolecall.workbench.replay.writes import UNKNOWN_TASK

_NOT_FOUND: Final = 404
_UNRECORDED: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of objects that are not stored: there is nothing to know of them."""


def open_questions(run: RunLines, source: RecordSource) -> tuple[Question, ...]:
    """Return the questions of a run that its source could not answer, each once."""
    tasks = {(task["task"], task["host"]): TaskName(task["name"], task["place"]) for task in run.tasks}
    found: dict[Question, None] = {}
    for exchange in run.exchanges:
        if exchange.get("resource") and exchange["group"] not in _UNRECORDED:
            for text in _open_question(exchange, source):
                task = tasks.get((exchange["task"], exchange["host"]), UNKNOWN_TASK)
                found[Question(task, text)] = None
    return tuple(found)


def _open_question(exchange: Line, source: RecordSource) -> Iterator[str]:
    group, plural, namespace = exchange["group"], exchange["resource"], exchange["namespace"]
    where = f" in namespace {namespace}" if namespace else ""
    what = f"{plural}.{group}" if group else plural
    if exchange["verb"] in ("list", "watch", "deletecollection") and not exchange["name"]:
        query = query_of(exchange)
        if not source.is_listed(query):
            selectors = " and ".join(each for each in (query.labels, query.fields) if each)
            yield f"the list of {what}{where}" + (f" with {selectors}" if selectors else "")
    elif exchange["status"] == _NOT_FOUND and exchange["name"]:
        key = ObjectKey("" if plural == "namespaces" else namespace, exchange["name"])
        if not source.is_known(group, plural, key):
            yield f"{what} {exchange['name']}{where}"
