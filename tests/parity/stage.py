"""Runs a case with a runner, in its own directory, and observes it.

The content of a case is copied for each run, so that a run may write next to it and paths never decide. A directory is
`<root>/<runner>`, with names of equal length for both runners, because Ansible wraps lines.
"""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.process import Runner, RunSpec, new_ident
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.runs.workspace import Workspace
from tests.parity.cases import Case
from tests.parity.normalization import Normalizer
from tests.parity.observation import Observation, artifact_names, read_events, read_tree

CONTENT = Path(__file__).parent / "content"
COLLECTIONS = CONTENT / "collections"
MODULES = COLLECTIONS / "ansible_collections/parity/odd/plugins/modules"
Grants = Callable[[str], AbstractAsyncContextManager[RunEnvironment]]
"""Gives the run of that name its way to an API server."""


StartRunner = Callable[[Path], AbstractAsyncContextManager[Runner]]
"""Starts a runner for the content in a directory."""


@asynccontextmanager
async def no_access(_ident: str) -> AsyncIterator[RunEnvironment]:
    """Yield a run no way to any API server."""
    yield RunEnvironment()


@dataclass(slots=True)
class Stage:
    """One runner, the way to start another, and the directory for runs; `places` are further variables of every run.

    `grants` gives runs their access, `own` are texts that belong to this stage alone, with placeholders.
    """

    runner: Runner
    start_runner: StartRunner
    root: Path
    places: Mapping[str, Any] = field(default_factory=dict)
    grants: Grants = no_access
    own: Mapping[str, str] = field(default_factory=dict)
    idents: list[str] = field(default_factory=list)

    @property
    def normalizer(self) -> Normalizer:
        """Removes what belongs to this stage from what is seen on it."""
        idents = dict.fromkeys(self.idents, "<ident>")
        return Normalizer({str(self.root): "<root>"} | idents | dict(self.own))

    async def run(self, case: Case) -> Observation:
        """Run a case to its end."""
        project = self.root / "project"
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(CONTENT / case.name, project, symlinks=True)
        if case.modules == "role":
            role = project / "roles" / case.name
            shutil.copytree(MODULES, role / "library", dirs_exist_ok=True)
            shutil.rmtree(role / "meta")  # leads to the collection
        scratch = self.root / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        (self.root / "home").mkdir(exist_ok=True)
        with self._environment(case):
            async with self._runner(case) as runner:
                return await self._run(case, runner)

    @asynccontextmanager
    async def _runner(self, case: Case) -> AsyncIterator[Runner]:
        """Yield the shared runner, or one that starts now for an operator with an environment of its own."""
        if not case.environment:
            yield self.runner
            return
        async with self.start_runner(CONTENT / case.name) as runner:
            yield runner

    async def _run(self, case: Case, runner: Runner) -> Observation:
        project, scratch = self.root / "project", self.root / "scratch"
        workspace = Workspace(self.root / "runs", GVK("example.com", "v1", "Parity"), ObjectKey("default", "case"))
        ident = new_ident()
        self.idents.append(ident)
        playbook = project / "site.yml"
        variables = {**case.variables, "scratch": str(scratch), "project": str(project), **self.places}
        found = playbook if playbook.exists() else None
        workspace.prepare(ident, variables, self._fill(case.cmdline), found)
        (workspace.path / "env/envvars").write_text(json.dumps(self._filled(case.file_environment)))
        reported: list[RunEvent] = []
        async with self.grants(ident) as grant:
            summary = await runner.run(self._job(case, ident, workspace, grant), reported.append)
        artifacts = workspace.artifacts(ident)
        return Observation(
            summary=summary,
            raw_events=read_events(artifacts),
            reported=reported,
            artifacts=artifact_names(artifacts),
            files=read_tree(scratch) | read_tree(workspace.path / "env"),
            processes=[str(process) for process in processes_of_run(ident)],
        )

    def _job(self, case: Case, ident: str, workspace: Workspace, grant: RunEnvironment) -> RunSpec:
        project = self.root / "project"
        playbook = project / "site.yml"
        content = PlaybookContent(playbook) if playbook.exists() else RoleContent(project / "roles" / case.name)
        own = self._filled({"PARITY_SCRATCH": "{scratch}", **case.job_environment})
        return RunSpec(
            ident=ident,
            workspace=workspace,
            content=content,
            verbosity=case.verbosity,
            environment=replace(grant, variables={**own, **grant.variables}),
            timeout_seconds=case.timeout_seconds,
            grace_seconds=1,
        )

    def _filled(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {name: self._fill(value) for name, value in variables.items()}

    def _fill(self, text: str) -> str:
        for name in ("project", "scratch", "home"):
            text = text.replace(f"{{{name}}}", str(self.root / name))
        return text

    @contextmanager
    def _environment(self, case: Case) -> Iterator[None]:
        """Yield this process, which stands for the operator, the environment of a case."""
        changed = self._filled(case.environment)
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
