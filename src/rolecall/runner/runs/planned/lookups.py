"""Lookups of a planned run: those that compute, read files or ask Kubernetes run, the others end the plan.

A lookup runs when its result is used, so there is nothing to skip.
"""

import glob
import os
import shlex
from collections.abc import Callable
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins import loader

from rolecall.runner.runs.planned.classification import Kind, Verdict
from rolecall.runner.runs.planned.cluster_access import reason_elsewhere
from rolecall.runner.runs.planned.plan_files import PlanFiles

_KUBERNETES = "kubernetes.core.k8s"
_ALLOWED = frozenset(
    {
        *(
            f"ansible.builtin.{name}"
            for name in (
                *("config", "csvfile", "dict", "env", "file", "fileglob", "first_found", "indexed_items", "ini"),
                *("inventory_hostnames", "items", "list", "nested", "password", "random_choice", "sequence"),
                *("subelements", "template", "together", "unvault", "varnames", "vars"),
            )
        ),
        *(f"ansible.utils.{name}" for name in ("get_path", "index_of", "to_paths", "validate")),
        *(
            f"community.general.{name}"
            for name in ("cartesian", "dependent", "flattened", "merge_variables", "random_pet", "random_string")
        ),
        _KUBERNETES,
    }
)

_REASONS = {
    **{f"ansible.builtin.{name}": "runs a program" for name in ("lines", "pipe")},
    "kubernetes.core.kustomize": "runs a program",
    "ansible.builtin.url": "reaches another host",
    "community.general.dig": "reaches another host",
    "": "a lookup of the role",
}
_UNKNOWN = "may run a program or reach another host"

OnWithheld = Callable[[str, Verdict], None]


def install(name_of: Callable[[str], str], on_withheld: OnWithheld, files: PlanFiles | None) -> None:
    """Check each lookup before it runs, in this process and its workers.

    ``name_of`` gives the full name for the file of a plugin; ``on_withheld`` gets the name and the verdict of a lookup
    that must not run, and ends the plan. Without ``files`` lookups work on the files of this machine.
    """
    find = loader.lookup_loader.get_with_context

    def get_with_context(asked: str, *args: Any, **options: Any) -> Any:
        found = find(asked, *args, **options)
        if found.object is not None and not options.get("class_only"):
            name = name_of(getattr(found.object, "_original_path", ""))
            if name not in _ALLOWED:
                on_withheld(name or asked, Verdict(Kind.WITHHELD, _REASONS.get(name, _UNKNOWN)))
            _guard_instance(found.object, name, on_withheld, files)
        return found

    loader.lookup_loader.get_with_context = get_with_context


def read_from(files: PlanFiles) -> None:
    """Let the controller's side of actions and lookups find the files that the run has written."""
    for name in ("path_dwim_relative", "path_dwim_relative_stack"):
        setattr(DataLoader, name, _reading_absolute(getattr(DataLoader, name), files))
    plain = DataLoader.path_dwim
    DataLoader.path_dwim = lambda self, given: files.readable(plain(self, given))


def _reading_absolute(original: Callable[..., str], files: PlanFiles) -> Callable[..., str]:
    def find(self: DataLoader, where: Any, folder: str, source: Any, *args: Any, **options: Any) -> str:
        path = os.fsdecode(source) if isinstance(source, (str, bytes)) else ""
        if path.startswith("/") and files.readable(path) != path:
            source = files.readable(path)
        return original(self, where, folder, source, *args, **options)

    return find


def _guard_instance(lookup: Any, name: str, on_withheld: OnWithheld, files: PlanFiles | None) -> None:
    """Check or change the terms and options with which a lookup is going to run."""
    run = lookup.run

    def guarded(terms: list[Any], variables: Any = None, **options: Any) -> Any:
        if name == _KUBERNETES and (reason := reason_elsewhere(options, {}, os.environ)):
            on_withheld(name, Verdict(Kind.WITHHELD, reason, is_final=True))
        if name == "ansible.builtin.password" and files:
            terms = [_password_term(term, lookup, files) for term in terms]
        found = run(terms, variables, **options)
        return _with_own(found, terms, files) if name == "ansible.builtin.fileglob" and files else found

    lookup.run = guarded


def _password_term(term: str, lookup: Any, files: PlanFiles) -> str:
    """Return the term with which the lookup keeps its password in the plan's folder."""
    path, *rest = shlex.split(str(term))
    if path == os.devnull:
        return term
    real = lookup._loader.path_dwim(path)  # noqa: SLF001 - no public way
    own = files.inside(real)
    if os.path.exists(real):  # noqa: PTH110 - plain text
        own = files.writable(real)
    return shlex.join([own, *rest])


def _with_own(found: list[str], terms: list[Any], files: PlanFiles) -> list[str]:
    """Return the paths that a real run would find: those of the machine, and of files that the run has written."""
    own = [path for term in terms if str(term).startswith("/") for path in glob.glob(files.inside(str(term)))]  # noqa: PTH207
    return list(dict.fromkeys(files.outward([*found, *sorted(own)])))
