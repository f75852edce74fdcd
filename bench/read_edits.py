"""Whether reads as triggers lose anything: random edits next to a second operator that looks every two seconds.

Both operators run the same role, which reads a Secret, looks for a ConfigMap that comes and goes, and lists others by a
label; it changes nothing. The first runs when something changes, the second by its period, so it finds everything.
Edits come in bursts, and what each has seen is compared with what there is: an old picture that stays is a loss.
"""

import contextlib
import random
import time
from dataclasses import dataclass, field

from bench.readers import Reader
from bench.report import Row, Samples
from bench.stage import Stage, progress, until

from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject

CONFIG_MAP, SECRET = GVK("", "v1", "ConfigMap"), GVK("", "v1", "Secret")
MINUTES = 10.0
PERIOD_SECONDS, STAYS_SECONDS = 2.0, 20.0
_MEMBERS = 4
_LARGEST_BURST = 12
_TASKS = """\
- name: Read a Secret
  kubernetes.core.k8s_info:
    {api_version: v1, kind: Secret, name: login, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: login
- name: Look for a ConfigMap that comes and goes
  kubernetes.core.k8s_info:
    {api_version: v1, kind: ConfigMap, name: maybe, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: maybe
- name: List the members
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    label_selectors: [member=yes]
  register: members
- name: Say what there is
  ansible.builtin.set_stats:
    data:
      seen: "{{ (login.resources + maybe.resources + members.resources | sort(attribute='metadata.name'))
        | map(attribute='metadata.resourceVersion') | join(' ') }}"
"""


@dataclass(slots=True)
class Edits:
    """Random edits of what is read; ``seed`` makes them the same again."""

    stage: Stage
    namespace: str
    seed: int
    count: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seed the edits."""
        self._random = random.Random(self.seed)  # noqa: S311 - not used for security

    async def one(self) -> None:
        """Create, change or delete something."""
        self.count += 1
        names = ["maybe", *(f"member-{number}" for number in range(_MEMBERS))]
        gvk, name = self._random.choice([(SECRET, "login"), *((CONFIG_MAP, name) for name in names)])
        key = ObjectKey(self.namespace, name)
        if self._random.random() < 0.2:  # noqa: PLR2004 - a fifth
            with contextlib.suppress(NotFoundError):
                await self.stage.client.delete(gvk, key)
            return
        field_name = "stringData" if gvk == SECRET else "data"
        labels = {"member": self._random.choice(["yes", "no"])}
        content: RawObject = {field_name: {"value": str(self.count)}, "metadata": {"labels": labels}}
        try:
            await self.stage.client.patch(gvk, key, content)
        except NotFoundError:
            await self._create(gvk, key, content)

    async def burst(self) -> None:
        """Make some edits without pauses."""
        for _ in range(self._random.randint(1, _LARGEST_BURST)):
            await self.one()

    async def truth(self) -> str:
        """Return the values that a role would read now."""
        client = self.stage.client
        named = []
        for gvk, name in ((SECRET, "login"), (CONFIG_MAP, "maybe")):
            try:
                named.append(await client.get(gvk, ObjectKey(self.namespace, name)))
            except NotFoundError:
                continue
        listed = [obj async for page, _ in client.list_pages(CONFIG_MAP, self.namespace) for obj in page]
        members = [obj for obj in listed if (obj["metadata"].get("labels") or {}).get("member") == "yes"]
        members.sort(key=lambda obj: str(obj["metadata"]["name"]))
        return " ".join(str(obj["metadata"]["resourceVersion"]) for obj in [*named, *members])

    async def _create(self, gvk: GVK, key: ObjectKey, content: RawObject) -> None:
        metadata = {"name": key.name, "namespace": key.namespace} | content["metadata"]
        typed = {"apiVersion": gvk.api_version, "kind": gvk.kind}
        await self.stage.client.create(content | typed | {"metadata": metadata})


async def measure(stage: Stage, seconds: float) -> list[Row]:
    """Edit for so long, and report how late both operators were and how often a difference stayed."""
    seed = random.SystemRandom().randrange(1 << 30)
    progress(f"Random edits for {seconds:g} s with the seed {seed}")
    namespace = await stage.namespace("read-edits")
    edits = Edits(stage, namespace, seed)
    woken = Reader(stage, namespace, "woken", "watchReads: true", _TASKS)
    oracle = Reader(stage, namespace, "oracle", f"reconcilePeriod: {PERIOD_SECONDS:g}s", _TASKS)
    delays: dict[str, list[float]] = {woken.name: [], oracle.name: []}
    lost = bursts = 0
    async with woken.running() as operator, oracle.running():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await edits.burst()
            bursts += 1
            for reader in (woken, oracle):
                late = await _lateness(reader, await edits.truth())
                lost += late is None and reader is woken
                delays[reader.name] += [] if late is None else [late]
        runs = len(operator.messages("Reconcile started"))
    remark = f"{edits.count} edits in {bursts} bursts, {runs} runs, seed {seed}"
    first, second = (Samples(delays[reader.name]) for reader in (woken, oracle))
    return [
        Row("random edits: differences that stayed", lost, "", 0.0, remark),
        Row("random edits: until the woken role has seen a burst", first.percentile(95), "s", remark="95th percentile"),
        Row("the same with a period of two seconds", second.percentile(95), "s", remark="95th percentile"),
    ]


async def _lateness(reader: Reader, truth: str) -> float | None:
    """Return the seconds until a reader has seen what there is, None if it does not."""
    started = time.monotonic()

    async def has_seen() -> bool:
        return await reader.seen() == truth

    try:
        await until(has_seen, STAYS_SECONDS, f"{reader.name} has seen {truth}")
    except TimeoutError as error:
        progress(f"A difference stays: {error}; seen: {await reader.seen()}")
        return None
    return time.monotonic() - started
