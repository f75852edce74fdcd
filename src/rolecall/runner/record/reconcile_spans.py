"""The spans of one reconcile, made from the record of its run: reconcile, run, tasks, requests.

Names and attributes follow OpenTelemetry's semantic conventions where these have one. No body, query or value of a
header is in a span, nor the text of a failure; secret values of the run are masked in what remains, as in its record.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer, set_span_in_context
from yarl import URL

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy import Exchange
from rolecall.runner.proxy.request_info import READ_VERBS, RequestInfo
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.run_record import Ending, RunRecord, TaskRecord
from rolecall.runner.record.span_export import PresetIds
from rolecall.runner.record.timeline import seconds_of

Attributes = dict[str, str | bool | int | float | list[str]]
TaskSpans = dict[tuple[str, str], Context]

_NANOSECONDS: Final = 1_000_000_000
_FAILED: Final = frozenset({"failed", "unreachable"})
_FIRST_ERROR, _NOT_FOUND = 400, 404


@dataclass(frozen=True, slots=True)
class Traced:
    """A reconcile that has ended, and its span, which has not.

    ``content`` is the name of the role or playbook; the times are those of its run. All are empty without a run.
    """

    span: Span
    obj: RawObject
    record: RunRecord | None
    ending: Ending
    causes: tuple[str, ...] = ()
    content: str = ""
    run_started_ns: int = 0
    run_ended_ns: int = 0


def start_attributes(gvk: GVK, key: ObjectKey, ident: str) -> Attributes:
    """Return what is known of a reconcile when it starts, by which samplers may choose."""
    attributes: Attributes = {
        "k8s.object.api_version": gvk.api_version,
        "k8s.object.kind": gvk.kind,
        "k8s.object.name": key.name,
        "rolecall.job": ident,
    }
    return attributes | ({"k8s.namespace.name": key.namespace} if key.namespace else {})


def changed_nothing(record: RunRecord | None, ending: Ending) -> bool:
    """Return whether a reconcile was successful and its run sent no write and changed nothing elsewhere."""
    if ending.outcome != "succeeded":
        return False
    if record is None:
        return True
    has_written = any(kept.exchange.info.is_write and not kept.exchange.info.is_dry_run for kept in record.exchanges)
    has_changed = any(task.result == "changed" for task in record.tasks.values())
    return not (record.is_finalizing or has_written or has_changed)


class Writer:
    """Makes the spans of one reconcile; ``mask`` knows the secret values of its run."""

    def __init__(self, tracer: Tracer, ids: PresetIds, server: str, mask: Mask | None) -> None:
        self._tracer, self._ids = tracer, ids
        url = URL(server)
        self._server: Attributes = {"server.address": url.host or "", "server.port": url.port or 0}
        self._mask = mask or Mask()

    def write(self, traced: Traced, ended_ns: int) -> None:
        """End the span of the reconcile, with those below it."""
        span, ending = traced.span, traced.ending
        if uid := uid_of(traced.obj):
            span.set_attribute("k8s.object.uid", uid)
        span.set_attribute("rolecall.causes", [self._masked(text) for text in traced.causes])
        if ending.requeue_after_seconds is not None:
            span.set_attribute("rolecall.requeue_after_seconds", ending.requeue_after_seconds)
        if traced.record is not None:
            self._run(traced, traced.record)
        if ending.outcome != "succeeded":
            _fail(span, ending.summary.status if ending.summary and not ending.summary.is_successful else "reconcile")
        span.end(ended_ns)

    def _run(self, traced: Traced, record: RunRecord) -> None:
        summary, name = traced.ending.summary, traced.content
        attributes: Attributes = {"rolecall.finalizing": record.is_finalizing, "rolecall.content": name}
        if summary is not None and summary.completion:
            counts = summary.counts
            attributes |= {f"ansible.tasks.{each}": getattr(counts, each) for each in ("ok", "changed", "skipped")}
        above = set_span_in_context(traced.span)
        run = self._tracer.start_span(f"run {name}", above, attributes=attributes, start_time=traced.run_started_ns)
        below = set_span_in_context(run)
        tasks = self._tasks(record, below, traced.run_ended_ns)
        for kept in record.exchanges:
            origin = kept.exchange.origin
            self._request(kept.exchange, tasks.get((origin.task, origin.host), below))
        if summary is None or not summary.is_successful:
            _fail(run, summary.status if summary else "unknown")
        run.end(traced.run_ended_ns)

    def _tasks(self, record: RunRecord, above: Context, run_ended_ns: int) -> TaskSpans:
        """Make the spans of the tasks, and return them by task and host."""
        spans: TaskSpans = {}
        for where, task in record.tasks.items():
            if task.has_run and (started := seconds_of(task.started)) is not None:
                ended_ns = int((started + task.duration_seconds) * _NANOSECONDS)
                spans[where] = self._task(task, above, ended_ns)
        last = record.unfinished_task
        if last is not None and seconds_of(last.started) is not None:
            hosts = {each.exchange.origin.host for each in record.exchanges if each.exchange.origin.task == last.ident}
            below = self._task(last, above, run_ended_ns)
            spans |= {(last.ident, host): below for host in hosts}
        return spans

    def _task(self, task: TaskRecord, above: Context, ended_ns: int) -> Context:
        name = self._masked(task.name)
        path, _, line = task.path.rpartition(":")
        attributes: Attributes = {
            "ansible.task.name": name,
            "ansible.task.action": task.action,
            "ansible.task.result": task.result or "unfinished",
        }
        attributes |= {"ansible.host": self._masked(task.host)} if task.host else {}
        attributes |= {"code.file.path": path, "code.line.number": int(line)} if line.isdecimal() else {}
        started_ns = int((seconds_of(task.started) or 0.0) * _NANOSECONDS)
        span = self._tracer.start_span(name or "task", above, attributes=attributes, start_time=started_ns)
        if task.result in _FAILED or not task.result:
            _fail(span, task.result or "unfinished")
        span.end(max(ended_ns, started_ns))
        return set_span_in_context(span)

    def _request(self, exchange: Exchange, above: Context) -> None:
        info, context = exchange.info, exchange.context
        started_ns = int(exchange.started * _NANOSECONDS)
        links = tuple(_links(context.carried))
        if context.given:
            self._ids.preset(int(_parts(context.given)[1], 16))
        span = self._tracer.start_span(
            _name_of(exchange.method, info),
            above,
            SpanKind.CLIENT,
            self._attributes(exchange),
            links,
            started_ns,
        )
        if error := _error_of(exchange):
            _fail(span, error)
        span.end(started_ns + int(exchange.duration_seconds * _NANOSECONDS))

    def _attributes(self, exchange: Exchange) -> Attributes:
        path = exchange.target.partition("?")[0]
        attributes: Attributes = {
            **self._server,
            "http.request.method": exchange.method,
            "url.path": self._mask.apply_to_path(path),
            "rolecall.verb": exchange.info.verb,
        }
        if exchange.status is not None:
            attributes["http.response.status_code"] = exchange.status
        return attributes

    def _masked(self, text: str) -> str:
        return str(self._mask.apply_to(text))


def _name_of(method: str, info: RequestInfo) -> str:
    """Return a name of which there are few: the method and the kind of what was asked for."""
    if not info.is_resource:
        return method
    resource = f"{info.resource}.{info.group}" if info.group else info.resource
    return f"{method} {resource}/{info.subresource}" if info.subresource else f"{method} {resource}"


def _error_of(exchange: Exchange) -> str:
    """Return what kind of error ended a request, empty for none: that something is not there is an answer."""
    status, info = exchange.status, exchange.info
    if status is None:
        return "" if info.is_long_running else "no_answer"
    if status < _FIRST_ERROR or (status == _NOT_FOUND and (info.verb in READ_VERBS or info.is_removal)):
        return ""
    return str(status)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _links(carried: str) -> Iterator[Link]:
    """Yield a link to what a request was a part of before it came here."""
    if carried:
        trace, span, flags = _parts(carried)
        context = SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
        yield Link(context)


def _parts(traceparent: str) -> tuple[str, str, str]:
    """Return the trace, the span and the flags of a ``traceparent``."""
    _, trace, span, flags, *_ = traceparent.split("-")
    return trace, span, flags
