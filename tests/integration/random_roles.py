"""Random roles for plans: tasks of usual roles in unusual orders.

The same seed gives the same role. All roles write to few objects, so that a task often finds the result of another.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

Task = dict[str, Any]
TASKS: Final = 9
LETTERS: Final = "abc"
FACT: Final = "{{ fact | default('none') }}"
TEMPLATE: Final = "seed {{ me }} fact {{ fact | default('none') }}"


def tasks_of(seed: int, *, can_fail: bool = True) -> str:
    """Return the tasks of a role as text; if it can't fail, every task ignores errors."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    made = [chance.choice(_KINDS_OF_TASKS)(chance, number) for number in range(TASKS)]
    if not can_fail:
        made = [{**task, "ignore_errors": True} for task in made]
    return yaml.safe_dump(made, sort_keys=False, width=200)


def setup_of(name: str) -> list[dict[str, Any]]:
    """Return the objects that exist before the role of an object runs for the first time."""
    known = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-a"}, "data": {"old": "1"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-b"}, "stringData": {"word": "open"}}
    return [known, secret]


def _named(chance: random.Random) -> str:
    return f"{{{{ me }}}}-{chance.choice(LETTERS)}"


def _place(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "{{ ns }}"}


def _object(chance: random.Random) -> dict[str, Any]:
    value = chance.choice(["1", "two", FACT, "{{ lookup('template', 'text.j2') }}", "{{ item | default('no item') }}"])
    place = _place(_named(chance))
    if chance.random() < 0.3:
        place["labels"] = {"chance": chance.choice(["low", "high"])}
    match chance.randrange(5):
        case 0:
            return {"apiVersion": "v1", "kind": "Secret", "metadata": place, "stringData": {"word": value}}
        case 1:
            return {"apiVersion": "test.rolecall.dev/v1", "kind": "Thing", "metadata": place, "spec": {"word": value}}
        case 2:
            return _deployment(place, chance.randrange(3))
        case _:
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {chance.choice("xyz"): value}}


def _deployment(place: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    labels = {"app": place["name"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec}


def _present(chance: random.Random, number: int) -> Task:
    task: Task = {"name": f"{number} present", "kubernetes.core.k8s": {"definition": _object(chance)}}
    return _varied(chance, task)


def _applied(chance: random.Random, number: int) -> Task:
    task: Task = {"name": f"{number} applied", "kubernetes.core.k8s": {"apply": True, "definition": _object(chance)}}
    return _varied(chance, task)


def _patched(chance: random.Random, number: int) -> Task:
    definition = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _place(_named(chance)),
        "data": {chance.choice("xyz"): chance.choice(["patched", None])},
    }
    task: Task = {"name": f"{number} patched", "kubernetes.core.k8s": {"state": "patched", "definition": definition}}
    return _varied(chance, task)


def _absent(chance: random.Random, number: int) -> Task:
    kind = chance.choice(["ConfigMap", "Secret"])
    wanted = {"state": "absent", "api_version": "v1", "kind": kind, **_place(_named(chance))}
    return _varied(chance, {"name": f"{number} absent", "kubernetes.core.k8s": wanted})


def _info(chance: random.Random, number: int) -> Task:
    wanted = {"kind": chance.choice(["ConfigMap", "Secret"]), **_place(_named(chance))}
    return {"name": f"{number} info", "kubernetes.core.k8s_info": wanted, "register": "seen"}


def _fact(chance: random.Random, number: int) -> Task:
    value = chance.choice(["{{ (seen.resources | default([])) | length }} seen", f"of {number}", f"{FACT} again"])
    return {"name": f"{number} fact", "ansible.builtin.set_fact": {"fact": value}}


def _generated(chance: random.Random, number: int) -> Task:
    # Only if there is none yet: otherwise each run would make one more, and there would be no end.
    metadata = {"generateName": f"{_named(chance)}-", "namespace": "{{ ns }}", "labels": {"of": "{{ me }}"}}
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"fact": FACT}}
    return {
        "name": f"{number} generated",
        "kubernetes.core.k8s": {"definition": definition},
        "when": "not (lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, label_selector='of=' ~ me))",
    }


def _varied(chance: random.Random, task: Task) -> Task:
    if chance.random() < 0.3:
        task["loop"] = ["one", "two"]
    if chance.random() < 0.3:
        task["when"] = chance.choice(["fact is defined", "fact is not defined", "seen is defined and seen.resources"])
    if chance.random() < 0.8:
        task["ignore_errors"] = True
    return task


_KINDS_OF_TASKS: Final[tuple[Callable[[random.Random, int], Task], ...]] = (
    _present,
    _present,
    _applied,
    _patched,
    _absent,
    _info,
    _fact,
    _generated,
)
