"""An object in one row: its state, its last run, and what it waits for."""

from dataclasses import dataclass

from rolecall.runner.controller.request_state import RequestState
from rolecall.runner.dashboard.object_notes import ObjectNote
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import RowView, RunLineView, State, WaitView
from rolecall.runner.record.history import RunLine


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes the rows of the objects of one kind."""

    sources: Sources
    kind: Kind

    def state_of(self, note: ObjectNote) -> State:
        """Return what there is to say first about an object."""
        running = self.kind.watched.controller.running
        if running and note.key in running:  # most often nothing is, and to hash a key takes longer than to look
            return State.RUNNING
        if note.is_deleting:
            return State.DELETING
        if note.is_paused:
            return State.PAUSED
        return note.verdict if self.kind.watched.watch.manage_status else self._verdict_of_last_run(note)

    def row(self, note: ObjectNote) -> RowView:
        """Return the row of an object."""
        line = self.last_line(note)
        return RowView(
            kind=self.kind.id,
            kind_name=self.kind.gvk.kind,
            namespace=note.key.namespace,
            name=note.key.name,
            state=self.state_of(note),
            last_run=None if line is None else self._shown(line, self._idents(note)),
            waits_for=self._wait(note),
        )

    def lines(self, note: ObjectNote) -> tuple[RunLineView, ...]:
        """Return the runs of an object, the newest first."""
        recorder, idents = self.sources.recorder, self._idents(note)
        if recorder is None or recorder.history is None:
            return ()
        return tuple(self._shown(line, idents) for line in recorder.history.of(self.kind.gvk, note.key))

    def last_line(self, note: ObjectNote) -> RunLine | None:
        """Return the line about the last run of an object, None if it had none since the start of the operator."""
        recorder = self.sources.recorder
        if recorder is None or recorder.history is None:
            return None
        return recorder.history.last(self.kind.gvk, note.key)

    def _idents(self, note: ObjectNote) -> frozenset[str]:
        """Return the IDs of the runs that memory has records of."""
        recorder = self.sources.recorder
        if recorder is None:
            return frozenset()
        return frozenset(record.ident for record in recorder.memory.runs(self.kind.gvk, note.key))

    def _shown(self, line: RunLine, recorded: frozenset[str]) -> RunLineView:
        return RunLineView(
            id=line.ident,
            started=line.started,
            seconds=line.seconds,
            outcome=line.outcome,
            because=line.causes,
            tasks=line.tasks,
            requests=line.requests,
            has_record=line.ident in recorded,
        )

    def _verdict_of_last_run(self, note: ObjectNote) -> State:
        """Return the verdict for a kind whose status its role manages: its conditions may mean anything."""
        line = self.last_line(note)
        if line is None or line.outcome == "interrupted":
            return State.PENDING
        return State.SUCCEEDED if line.outcome == "succeeded" else State.FAILED

    def _wait(self, note: ObjectNote) -> WaitView:
        controller = self.kind.watched.controller
        request = controller.queue.look_up(note.key)
        if note.key in controller.running:
            return WaitView("its run")
        if not self.sources.is_mine(self.kind.gvk, note.key):
            return WaitView("the replica that has its shard")
        return self._queue(note, request)

    def _queue(self, note: ObjectNote, request: RequestState) -> WaitView:
        if request.priority is not None:
            return WaitView(f"{self._turn(request)}, {request.priority.label} priority", because=request.causes)
        if note.is_paused:
            return WaitView("the end of its pause")
        return self._timer(request)

    def _timer(self, request: RequestState) -> WaitView:
        if request.due is None:
            return WaitView("a change")
        until = self.sources.wall_time(request.due)
        if request.is_backing_off:
            times = "failure" if request.failures == 1 else "failures in a row"
            return WaitView(f"its back-off after {request.failures} {times}", until, request.causes)
        return WaitView("its next run", until, request.causes)

    def _turn(self, request: RequestState) -> str:
        """Return what a request in the queue waits for."""
        dispatcher, controller = self.sources.manager.dispatcher, self.kind.watched.controller
        if not self.sources.manager.is_leading:
            return "this replica to lead"
        if not dispatcher.has_started:
            return "the informers"
        if request.is_processing:
            return "the end of the run before"
        if not controller.has_free_worker:
            return f"a free worker of {controller.workers} of its kind"
        if not dispatcher.has_free_run:
            return f"a free run of {dispatcher.limit} in all"
        return "its turn"
