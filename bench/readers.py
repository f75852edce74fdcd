"""Operators whose role only reads and reports its reads in the status, to measure reads as triggers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import WARM, contenders
from bench.operator_process import Operator, running
from bench.stage import Stage
from bench.widgets import WIDGET

from rolecall.kube.references import ObjectKey

_LABEL = "reader"


@dataclass(frozen=True, slots=True)
class Reader:
    """A Widget and the operator that reconciles this one alone: its name, a key of its watch, and its tasks."""

    stage: Stage
    namespace: str
    name: str
    key: str
    tasks: str

    @asynccontextmanager
    async def running(self, **environment: str) -> AsyncIterator[Operator]:
        """Start the operator and create the Widget."""
        directory = self._project()
        variables: Mapping[str, str] = {"KUBECONFIG": str(self.stage.kubeconfig), "WATCH_NAMESPACE": self.namespace}
        warm = next(each for each in contenders(None) if each.name == WARM)
        async with running((*warm.command, "--record-memory=0"), directory, {**variables, **environment}) as operator:
            await operator.ready()
            await self.stage.client.create(self._widget())
            yield operator

    async def seen(self) -> str:
        """Return the values that its last run has read."""
        found = await self.stage.client.get(WIDGET, ObjectKey(self.namespace, self.name))
        return str((found.get("status") or {}).get("seen", ""))

    def _project(self) -> Path:
        directory = self.stage.subdirectory(f"{self.namespace}-{self.name}")
        (directory / "watches.yaml").write_text(
            f"- group: {WIDGET.group}\n  version: {WIDGET.version}\n  kind: {WIDGET.kind}\n  role: reader\n"
            f"  {self.key}\n"
            f"  selector: {{matchLabels: {{{_LABEL}: {self.name}}}}}\n  status: {{seen: $.stats.seen}}\n"
        )
        tasks = directory / "roles" / "reader" / "tasks"
        tasks.mkdir(parents=True)
        (tasks / "main.yml").write_text(self.tasks)
        return directory

    def _widget(self) -> dict[str, object]:
        metadata = {"name": self.name, "namespace": self.namespace, "labels": {_LABEL: self.name}}
        return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": metadata, "spec": {}}
