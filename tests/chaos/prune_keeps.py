"""Nothing else is ever deleted: runs of roles that name some objects only sometimes, with the audit log as the witness.

``python -m tests.chaos.prune_keeps [RUNS]`` runs stories until an operator has started so many runs, 1000 by default.
A story is an object of one of the classes in ``keeping_roles.py``. In random order, its spec changes, a gate opens and
closes, requests of its runs get errors, and the operator is killed or loses its Lease between any two of its writes.

A finding is a deletion by the operator, as the audit log has it, that the judgement of the class doesn't permit. As a
test of this test, the operator must delete what some classes no longer need. The exit code is 0 without
findings, 1 with findings, and 2 for invalid arguments.
"""

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rolecall.kube.errors import ApiError, NotFoundError
from rolecall.kube.metadata import annotation_of, metadata_of, uid_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION, PRUNE_ANNOTATION
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory
from rolecall.runner.reconcile.context import (
    CONFIRM_ANNOTATION,
    PAUSED_ANNOTATION,
    RECONCILE_REQUESTED_AT_ANNOTATION,
)
from tests.chaos.campaign import progress
from tests.chaos.keeping_roles import KEEPS, Keeps
from tests.chaos.keeping_stage import Stage, kind_of, stage_of
from tests.chaos.requests import accepted
from tests.support.audit import Deletion
from tests.support.world import CONFIG_MAP, World, eventually

_STOPS = 0.06
"""The share of the faults that stop the operator, because then it takes a while until anything runs again."""

_QUIET_SECONDS = 2.5
"""Longer than it takes from a run to the next one that is due."""

_REQUEST_SECONDS = 20.0
"""After a run that wasn't complete, because of a fault, the next one may be due much later."""

_GRACE_SECONDS = 0.5
"""A request that was checked against the spec just before a change is in flight."""


@dataclass(slots=True)
class Story:
    """One object of a class, and what happens to it; ``specs`` has its specs from a time on."""

    stage: Stage
    kind: str
    name: str
    chance: random.Random
    spec: dict[str, Any] = field(default_factory=dict)
    specs: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    is_closed: bool = False
    is_released: bool = False
    """Whether the role has its other version."""

    digests: list[str] = field(default_factory=list)
    """What could have been confirmed."""

    others: list["Story"] = field(default_factory=list)
    """Stories that this one has begun."""

    kept: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """The times in which a part must stay, whatever the spec says."""

    @property
    def keeps(self) -> Keeps:
        """The class."""
        return KEEPS[self.kind]

    @property
    def gvk(self) -> GVK:
        """The kind."""
        return kind_of(self.kind)

    @property
    def world(self) -> World:
        """The namespace."""
        return self.stage.world

    async def run(self, moves: int) -> None:
        """Create the object, and let some things happen to it. Raises AssertionError."""
        self.spec = {"size": self.chance.randint(1, 1000), "shared": f"{self.name}-common"}
        if self.keeps.gate:
            await self._open()
        if "adopt" in self.keeps.moves:
            await self.stage.make(f"{self.name}-theirs")
        await self._create()
        await self._until_followed("")
        if "share" in self.keeps.moves:
            await self._share()
        if "keep" in self.keeps.moves:
            await self._keep()
        pool = [self._edit, self._request, self._disturb, self._disturb, self._disturb, self._inject]
        for _ in range(moves):
            await self.chance.choice(pool)()
            if self.chance.random() < 0.8:
                await self._settle()
        if self.is_closed:
            await self._open()
            await self._request()
        await self._settle()
        if self.keeps.release and self.is_released:
            await self._release()
            await self._settle()
        if self.keeps.is_pruned:
            await self._switch_off()
        await accepted(self._delete)

    async def _create(self) -> None:
        obj = {"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, "spec": self.spec}
        metadata = {"name": self.name, "namespace": self.world.namespace}
        await accepted(lambda: self.world.client.create({**obj, "metadata": metadata}))
        self._note(f"create with {self.spec}")

    async def _delete(self) -> None:
        with suppress(NotFoundError):
            await self.world.delete(self.gvk, self.name)

    def _note(self, step: str) -> None:
        self.steps.append(f"{step} at {datetime.now(UTC):%H:%M:%S}")
        self.specs.append((time.time(), dict(self.spec)))

    async def _change(self, changes: Mapping[str, Any]) -> None:
        before = await self._inventory()
        self._end_of_use()
        self.spec |= {"size": self.chance.randint(1, 1000), **changes}
        await accepted(lambda: self.world.patch(self.gvk, self.name, {"spec": self.spec}))
        self._note(f"change to {self.spec}")
        if self.keeps.gate and not self.keeps.changes_while_closed:
            await self._until_followed(before)  # a spec and a lookup that change at once look like a switched-off part

    async def _edit(self) -> None:
        if not self.is_closed or self.keeps.changes_while_closed:
            await self._change({})

    async def _request(self) -> None:
        annotations = {RECONCILE_REQUESTED_AT_ANNOTATION: str(time.time())}
        await accepted(lambda: self.world.patch(self.gvk, self.name, {"metadata": {"annotations": annotations}}))
        self.steps.append("request a run")

    async def _inject(self) -> None:
        """Let a request get an error, or, sometimes, stop the operator."""
        faults = self.stage.faults
        stops = self.chance.random() < _STOPS and self.stage.may_stop
        self.steps.append(faults.stop(self.chance) if stops else faults.status(self.chance))
        await self._edit()

    async def _disturb(self) -> None:
        """Do what the class is about."""
        if self.keeps.gate:
            if self.is_closed:
                await self._open()
            else:
                await self._settle()
                await self._close()
            await self._request()
        elif self.keeps.changes:
            await self._change(self.chance.choice(self.keeps.changes))
        moves: Mapping[str, Callable[[], Awaitable[None]]] = {
            "tamper": self._tamper,
            "copy": self._copy,
            "orphan": partial(self._recreate, is_orphaning=True),
            "recreate": partial(self._recreate, is_orphaning=False),
            "new": self._bootstrap,
            "keep": self._keep,
            "use": self._use,
            "restore": self._restore,
            "clone": self._clone,
            "forge": self._forge,
            "confirm": self._confirm_something_else,
            "permit": self._permit,
            "release": self._release,
            "tags": self._with_tags,
        }
        await moves.get(self.chance.choice(self.keeps.moves or [""]), self._edit)()

    async def _open(self) -> None:
        """Open the gate, so that the role names everything."""
        match self.keeps.gate:
            case "file":
                (self.stage.gates / self.name).touch()
            case "object":
                await self.stage.make(f"{self.name}-gate")
            case "phase":
                await self.stage.set_phase(f"{self.name}-gate", "Ready")
            case "label":
                await self._set_label(None)
            case _:
                await self.stage.set_ready(f"{self.name}-gate", is_ready=True)
        self.is_closed = False
        self._note("open the gate")

    async def _close(self) -> None:
        match self.keeps.gate:
            case "file":
                (self.stage.gates / self.name).unlink()
            case "object":
                await accepted(lambda: self.world.delete(CONFIG_MAP, f"{self.name}-gate"))
            case "phase":
                await self.stage.set_phase(f"{self.name}-gate", self.chance.choice(["Creating", "Upgrading"]))
            case "label":
                await self._set_label("closed")
            case _:
                await self.stage.set_ready(f"{self.name}-gate", is_ready=False)
        self.is_closed = True
        self._note("close the gate")

    async def _tamper(self) -> None:
        """Change a part like another controller several times, so that runs change it back, and then the spec."""
        for number in range(self.chance.randint(2, 3)):
            ended = self._ended()
            data = {"data": {"size": f"tampered {number}"}}
            with suppress(NotFoundError):
                await accepted(lambda data=data: self.world.patch(CONFIG_MAP, f"{self.name}-a", data))  # type: ignore[misc]
            self.steps.append("tamper with a")
            await self._until_ended(ended + 1)
        await self._edit()

    async def _copy(self) -> None:
        """Copy a part like another controller, with its owner."""
        if (part := await self.world.find(CONFIG_MAP, f"{self.name}-a")) is not None:
            name = f"{self.name}-copy{len(self.steps)}"
            kept = {"ownerReferences": metadata_of(part).get("ownerReferences"), "labels": {"copy-of": self.name}}
            if self.chance.random() < 0.5:
                kept["annotations"] = metadata_of(part).get("annotations")
            metadata = {"name": name, "namespace": self.world.namespace, **kept}
            await accepted(
                lambda: self.world.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            )
            self.steps.append(f"copy a to {name}")
        await self._request()

    async def _share(self) -> None:
        """Let another object's role name the shared object; return when the operator has noticed."""
        two = replace(self, name=f"{self.name}-two", spec=dict(self.spec), specs=[], steps=[], others=[], kept={})
        await two._create()
        await self.stage.until(
            self._is_kept, f"the object that {self.name} shares has no mark; steps: {'; '.join(self.steps)}"
        )
        self.steps.append("share")

    async def _is_kept(self) -> bool:
        found = await self.world.find(CONFIG_MAP, f"{self.name}-common")
        return found is not None and annotation_of(found, MADE_FOR_ANNOTATION) is None

    async def _set_label(self, value: str | None) -> None:
        labels = {"metadata": {"labels": {"gate": value}}}
        with suppress(NotFoundError):  # the label is set before there is an object
            await accepted(lambda: self.world.patch(self.gvk, self.name, labels))

    def _must_stay(self, part: str, until: float = math.inf) -> None:
        """Note that from now on, a part must stay."""
        self.kept.setdefault(part, []).append((time.time(), until))
        self._note(f"{part} must stay")

    def _end_of_use(self) -> None:
        """With the next spec, who has changed a part must change it again."""
        if "use" in self.keeps.moves:
            times = self.kept.get("x", [])
            self.kept["x"] = [(since, min(until, time.time())) for since, until in times]

    async def _keep(self) -> None:
        """Let a user say that x stays: by the annotation, which may come with a definition, or without the mark."""
        if (part := await self.world.find(CONFIG_MAP, f"{self.name}-x")) is None:
            return
        how = self.chance.choice(["annotate", "apply", "unmark"])
        annotations = {MADE_FOR_ANNOTATION: None} if how == "unmark" else {PRUNE_ANNOTATION: "false"}
        if how == "apply":
            metadata = {"name": f"{self.name}-x", "namespace": self.world.namespace, "annotations": annotations}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await self._kubectl("apply", "-f", "-", manifest=manifest)
        else:
            patch = {"metadata": {"uid": uid_of(part), "annotations": annotations}}
            try:
                await accepted(lambda: self.world.patch(CONFIG_MAP, f"{self.name}-x", patch))
            except (NotFoundError, ApiError):  # it was deleted meanwhile
                return
        self.steps.append(f"{how} x")
        self._must_stay("x")
        await self._edit()

    async def _use(self) -> None:
        """Switch x off, and change it like somebody who has use for it, once the operator has noted it as obsolete."""
        await self._change({"extra": True})
        with suppress(AssertionError):
            await eventually(partial(self._has_parts, "xy"), bool, 20.0, "x and y are named")
        await self._change({"extra": False})
        with suppress(AssertionError):
            await eventually(self._is_obsolete, bool, 20.0, "x is obsolete")
            part = await self.world.find(CONFIG_MAP, f"{self.name}-x")
            labels = {"metadata": {"labels": {"used": str(len(self.steps))}}}
            with suppress(NotFoundError):
                if part is not None:
                    await accepted(lambda: self.world.patch(CONFIG_MAP, f"{self.name}-x", labels))
                    self._must_stay("x")
        await asyncio.sleep(self.chance.uniform(0, 10))

    async def _is_obsolete(self) -> bool:
        found = Inventory.of(await self.world.find(self.gvk, self.name) or {})
        return f"{self.name}-x" in [each.id.name for each in found.obsolete if each.seen]

    async def _restore(self) -> None:
        """Delete x and restore it from a backup, while the operator pauses."""
        if (part := await self.world.find(CONFIG_MAP, f"{self.name}-x")) is None:
            return
        await self._annotate({PAUSED_ANNOTATION: "true"})
        await self._settle()
        with suppress(NotFoundError, ApiError):  # a run in progress may be faster
            await accepted(lambda: self.world.delete(CONFIG_MAP, f"{self.name}-x"))
            await self._recreate_part(part, f"{self.name}-x")
            self._must_stay("x")
        await self._annotate({PAUSED_ANNOTATION: None})
        await self._settle()

    async def _recreate_part(self, source: RawObject, name: str) -> RawObject:
        """Create a part like another one, with all of its metadata that a backup has."""
        kept = {key: metadata_of(source).get(key) for key in ("labels", "annotations", "ownerReferences")}
        metadata = {"name": name, "namespace": self.world.namespace, **kept}
        return await accepted(lambda: self.world.client.create({**source, "metadata": metadata}))

    async def _annotate(self, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        await accepted(lambda: self.world.patch(self.gvk, self.name, patch))

    async def _clone(self) -> None:
        """Clone a part, let the role name the clone for a while, and no longer."""
        if (part := await self.world.find(CONFIG_MAP, f"{self.name}-a")) is not None:
            name = f"{self.name}-clone{len(self.steps)}"
            await self._recreate_part(part, name)
            self.steps.append(f"clone a to {name}")
            await self._change({"clones": [name]})
            await self._settle()
        await self._change({"clones": []})

    async def _forge(self) -> None:
        """Write an entry for an object of somebody else, which may have the mark of a part, into the inventory."""
        found = await self.world.find(self.gvk, self.name)
        part = await self.world.find(CONFIG_MAP, f"{self.name}-a")
        text = annotation_of(found or {}, INVENTORY_ANNOTATION)
        if part is None or not text:
            return
        name = f"{self.name}-victim{len(self.steps)}"
        victim = await self._recreate_part(part, name)
        place = self.chance.choice([name, f"../configmaps/{name}", f"{self.name}-a"])
        plural = self.chance.choice(["configmaps", "configmaps", "x"])
        content = json.loads(text)
        uid = uid_of(part if place.endswith("-a") else victim)
        entry = ["", plural, self.world.namespace, place, "v1", "ConfigMap", uid, 1, False, ""]
        if place.endswith("-a") and plural == "configmaps":
            entry[4:6] = "v1", "Secret"
        content["objects"].append(entry)
        if self.chance.random() < 0.5:
            content["stable"] = content["spec"] = content["role"] = "0" * 32
        await self._annotate({INVENTORY_ANNOTATION: json.dumps(content)})
        self.steps.append(f"forge {entry}")
        await self._edit()

    async def _confirm_something_else(self) -> None:
        """Confirm what was proposed for an earlier spec."""
        if digest := Inventory.of(await self.world.find(self.gvk, self.name) or {}).confirm:
            self.digests.append(digest)
        await self._change(self.chance.choice(self.keeps.changes))
        await self._annotate({CONFIRM_ANNOTATION: self.chance.choice([*self.digests, "0123456789abcdef"])})
        self.steps.append("confirm something else")

    async def _permit(self) -> None:
        """Confirm what is proposed now."""
        await self._settle()
        if digest := Inventory.of(await self.world.find(self.gvk, self.name) or {}).confirm:
            await self._annotate({CONFIRM_ANNOTATION: digest})
            self.steps.append(f"confirm {digest}")
            await asyncio.sleep(self.chance.uniform(0, 6))
        await self._edit()

    async def _release(self) -> None:
        """Change the role for all of its objects, to its other version or back."""
        self.is_released = not self.is_released
        self.stage.release(self.kind, self.keeps.release if self.is_released else self.keeps.tasks)
        self.steps.append(f"release {'the other' if self.is_released else 'the first'} version")
        await (self._edit if self.chance.random() < 0.5 else self._request)()

    async def _recreate(self, *, is_orphaning: bool) -> None:
        """Delete the object like kubectl, with or without ``--cascade=orphan``, and create one of the same name."""
        how = "orphan" if is_orphaning else "background"
        await self._kubectl("delete", f"{self.gvk.kind.lower()}s.{self.gvk.group}", self.name, f"--cascade={how}")
        self.spec = {**self.spec, "size": self.chance.randint(1, 1000), "extra": self.chance.random() < 0.3}
        await self._create()
        self.steps.append(f"was deleted with --cascade={how}")

    async def _kubectl(self, *words: str, manifest: RawObject | None = None) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self.stage.administrator)}
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "--namespace", self.world.namespace, *words),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,  # warnings
        )
        await process.communicate(json.dumps(manifest).encode())
        assert process.returncode == 0

    async def _bootstrap(self) -> None:
        """Create another object, and change it immediately after its first run."""
        story = replace(
            self, name=f"{self.name}-n{len(self.steps)}", spec=dict(self.spec), specs=[], steps=[], others=[], kept={}
        )
        self.others.append(story)
        await story._create()
        await story._until_ended(1)
        await story._change({})
        await story._settle()
        await accepted(story._delete)

    async def _with_tags(self) -> None:
        if "run with tags" in self.steps:  # two restarts of the operator are enough
            await self._edit()
            return
        async with self.stage.tags():
            self.steps.append("run with tags")
            ended = self._ended()
            await self._edit()
            await self._until_ended(ended + 2)

    async def _switch_off(self) -> None:
        """Wait until the operator has deleted what the spec no longer needs."""
        await self._change({"extra": True})
        await self.stage.until(partial(self._has_parts, "xy"), f"the inventory of {self.name} has x and y")
        await self._change({"extra": False})
        await self.stage.until(self._is_pruned, f"x of {self.name} is deleted; steps: {'; '.join(self.steps)}")

    async def _has_parts(self, parts: str) -> bool:
        inventory = await self._inventory()
        return all(f'"{self.name}-{part}"' in inventory for part in parts)

    async def _is_pruned(self) -> bool:
        return await self.world.find(self.keeps.part, f"{self.name}-x") is None

    def _ended(self) -> int:
        self.stage.runs.read()
        return self.stage.runs.ended[self.gvk.kind, self.name]

    async def _until_ended(self, count: int) -> None:
        async def look() -> int:
            return self._ended()

        with suppress(AssertionError):  # the operator may be killed in the meantime, and has nothing to do then
            await eventually(look, lambda ended: ended >= count, 60.0, "a run ends")

    async def _inventory(self) -> str:
        found = await self.world.find(self.gvk, self.name)
        return (annotation_of(found, INVENTORY_ANNOTATION) or "") if found else ""

    async def _until_followed(self, before: str) -> None:
        """Wait until the operator has written another inventory, and has judged everything in it by a complete run."""

        async def look() -> bool:
            text = await self._inventory()
            states = [each[7] for each in json.loads(text)["objects"]] if text else []
            is_judged = min(states, default=0) >= 0 and not (self.keeps.gate and any(states))
            return text != before and is_judged

        for _ in range(int(self.stage.timeout_seconds // _REQUEST_SECONDS)):
            with suppress(AssertionError):
                await eventually(look, bool, _REQUEST_SECONDS, "the inventory is written")
                return
            await self._request()
        raise AssertionError(f"no inventory of {self.name}; steps: {'; '.join(self.steps)}")

    async def _settle(self) -> None:
        """Wait until no run is in progress, and none has started for a while."""
        run, since = (self.gvk.kind, self.name), time.monotonic()

        async def look() -> bool:
            self.stage.runs.read()
            last = max(since, self.stage.runs.changed.get(run, 0.0))
            return run not in self.stage.runs.running and time.monotonic() - last > _QUIET_SECONDS

        with suppress(AssertionError):
            await eventually(look, bool, 30.0, "no further run")

    def wrong(self, deletion: Deletion) -> bool:
        """Return whether a deletion of an object of this story isn't permitted by the judgement of its class."""
        part = deletion.name.removeprefix(f"{self.name}-")
        if any(since < deletion.at < until for since, until in self.kept.get(part, ())):
            return True
        if not self.keeps.may_go.fullmatch(part):
            return True
        effective = [spec for since, spec in self.specs if since <= deletion.at - _GRACE_SECONDS][-1:]
        effective += [spec for since, spec in self.specs if deletion.at - _GRACE_SECONDS < since <= deletion.at]
        return all(part in self.keeps.needs(spec) for spec in effective)


@dataclass(slots=True)
class Stories:
    """All stories of one operator."""

    stage: Stage
    told: list[Story] = field(default_factory=list)

    async def tell(self, kinds: Iterable[str], number: int, moves: int, at_once: int = 4) -> list[str]:
        """Tell a story of each class, some at the same time; return what prevented their ends."""
        limit = asyncio.Semaphore(at_once)

        async def tell(kind: str) -> str:
            story = Story(self.stage, kind, f"{kind}-{number}", random.Random(f"{kind} {number}"))  # noqa: S311 - no secret
            async with limit:
                self.told.append(story)
                try:
                    await story.run(moves)
                except AssertionError as error:
                    return f"{story.name}: {error}"
            return ""

        return [text for text in await asyncio.gather(*map(tell, kinds)) if text]

    def findings(self) -> list[str]:
        """Return the deletions that no judgement permits."""
        found = []
        stories = [each for story in self.told for each in (story, *story.others)]
        for each in self.stage.deletions():
            owners = [story for story in stories if each.name.startswith(f"{story.name}-")]
            story = max(owners, key=lambda story: len(story.name), default=None)
            if story is None or story.wrong(each):
                why = f"although {story.keeps.because}; steps: {'; '.join(story.steps)}" if story else "of no story"
                found.append(f"{datetime.fromtimestamp(each.at, UTC):%H:%M:%S} {each.resource} {each.name}: {why}")
        return found

    def deleted(self, kind: str) -> int:
        """Return how many parts of a class the operator has deleted."""
        return sum(each.name.startswith(f"{kind}-") for each in self.stage.deletions())


def available() -> list[str]:
    """Return the classes whose tools this machine has."""
    return [name for name in KEEPS if name != "helm" or shutil.which("helm")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell stories until so many runs have started, print a line for each finding, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.prune_keeps", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=1000, help="how many runs (default: 1000)")
    parser.add_argument("--moves", type=int, default=8, help="of each story (default: 8)")
    parser.add_argument("--first", type=int, default=1, metavar="NUMBER", help="of the stories (default: 1)")
    parser.add_argument("--only", choices=available(), nargs="+", default=available(), help="the classes")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for each wait (default: 120)")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="rolecall-keeps-"))
    found = asyncio.run(_run_all(options, directory))
    sys.stdout.write("".join(f"{text}\n" for text in found))
    return 1 if found else 0


async def _run_all(options: argparse.Namespace, directory: Path) -> list[str]:
    """Return all findings."""
    found: list[str] = []
    number = options.first
    async with stage_of(directory, options.timeout) as stage:
        stories, runs = Stories(stage), stage.runs
        while not found and runs.started.total() < options.runs:
            kinds = sorted(options.only)
            random.Random(number).shuffle(kinds)  # noqa: S311 - no secret
            unfinished = await stories.tell(kinds, number, options.moves)
            found = stories.findings()
            for text in unfinished:
                progress(f"Not finished: {text}")
            runs.read()
            progress(f"{runs.started.total()} runs after stories {number}, {len(found)} wrong deletions")
            number += 1
        for kind in options.only:
            line = f"{kind}: {runs.of_class(kind)} runs, {stories.deleted(kind)} deletions that the judgement permits"
            sys.stdout.write(f"{line}\n")
            if KEEPS[kind].is_pruned and not stories.deleted(kind):
                found.append(f"{kind}: nothing was deleted, so the test shows nothing")
        total = runs.started.total()
    sys.stdout.write(f"{total} runs, {len(found)} findings; the operator's log: {directory / 'operator.log'}\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
