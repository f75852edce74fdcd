"""Views as an operator could send them."""

from rolecall.page.views import (
    ConditionView,
    KindView,
    ListView,
    ObjectView,
    Query,
    ReplicaView,
    RequestView,
    RowView,
    RunLineView,
    RunView,
    Span,
    State,
    TaskView,
    WaitView,
    WakeView,
)

NOW = 1_800_000_000.0
KIND = "Foo.v1.example.com"
REPLICA = ReplicaView("1.2.3", "This replica runs the roles.", True, 1, 4, None, 0)  # noqa: FBT003 - a view


def run_line(ident: str = "7", *, has_record: bool = True, why: str = "spec.size (generation 2)") -> RunLineView:
    return RunLineView(ident, NOW - 30, 1.25, "succeeded", (why,), 3, 12, has_record)


def row(name: str = "one", state: State = State.SUCCEEDED, text: str = "its next run") -> RowView:
    return RowView(KIND, "Foo", "default", name, state, run_line(), WaitView(text, NOW + 600))


def objects(*rows: RowView, query: Query | None = None, pages: int = 1, found: int | None = None) -> ListView:
    states = {state.value: sum(each.state is state for each in rows) for state in State}
    kind = KindView(KIND, "Foo", "example.com/v1", "foo", len(rows), states, 0, 1, 1, 4, "")
    return ListView(REPLICA, (kind,), query or Query(), rows, len(rows) if found is None else found, pages)


def one_object(*, text: str = "cannot use it", runs: int = 2) -> ObjectView:
    return ObjectView(
        replica=REPLICA,
        row=row(state=State.FAILED),
        api_version="example.com/v1",
        generation=2,
        shard=None,
        is_mine=True,
        conditions=(ConditionView("Failure", "True", "Failed", "2026-11-22T10:00:00Z", text),),
        runs=tuple(run_line(str(number), has_record=number % 2 == 0) for number in range(runs)),
        wakes=(WakeView("This Foo", "a change of what is not its status"),),
        more_reads=0,
    )


def one_run(*, text: str = "it went wrong", tasks: int = 1) -> RunView:
    effects = ("ConfigMap default/size", "-  size: '1'", "+  size: '2'")
    request = RequestView("update", f"configmaps/{text}", 200, False, 0.1, Span(500, 250), (), effects)  # noqa: FBT003 - a view
    place, is_hidden = "main.yml:3", False
    task = TaskView(f"Write {text}", "localhost", place, "failed", 0.5, Span(0, 1000), is_hidden, text, (), (request,))
    return RunView(
        replica=REPLICA,
        kind=KIND,
        kind_name="Foo",
        namespace="default",
        name="one",
        id="7",
        started="2026-11-22T10:00:00Z",
        seconds=0.5,
        outcome="failed",
        because=("spec.size",),
        content="foo",
        is_finalizing=False,
        is_complete=True,
        requeue_after_seconds=None,
        failures=(text,),
        status=("conditions: []",),
        tasks=(task,) * tasks,
        other_requests=(),
        left_out=0,
    )
