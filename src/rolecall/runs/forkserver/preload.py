"""What the server imports and looks up before the first run.

All of this happens once instead of in every run: the server imports ansible-core, ansible-runner and the Kubernetes
client, finds plugins and reads their options, and loads collections and the code that modules need. None of it depends
on a run. Vars plugins are not instantiated: their loader keeps the instances, which belong to a run.
"""

import ast
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Protocol

COMMON_MODULES = ("ansible.legacy.setup", "ansible.legacy.command", "ansible.legacy.stat", "ansible.legacy.file")
_PLUGIN_KINDS = ("action", "become", "cache", "callback", "connection", "inventory", "shell", "strategy", "lookup")
_TASK = re.compile(r"^[\s-]*([a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_.]*)\s*:", re.MULTILINE)
_CONFIG_WARNINGS = ("_errors", "WARNINGS", "DEPRECATED")
_TASK_FILES = ("*.yml", "*.yaml")


class Preparation(Protocol):
    """Something that the server has prepared for runs."""

    def install(self) -> None:
        """Use it from now on in this process, the child that becomes ansible-playbook."""


def preload(contents: Sequence[Path]) -> list[Preparation]:
    """Prepare for the roles and playbooks in these directories; return what each run has to install."""
    restore_config_warnings = _hold_config_warnings()
    _import_ansible()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # each run prints it itself
        _look_up_plugins()
        _fill_caches()
        for name in [*COMMON_MODULES, *sorted(_modules_in_use(contents))]:
            with suppress(Exception):  # a role may name a module that does not exist; its run reports that
                _prepare_module(name)
        importlib.import_module("rolecall.runs.ansible_patches.known_discovery").prepare()
        preparations = list(_preparations(contents))
    restore_config_warnings()
    return preparations


def _hold_config_warnings() -> Callable[[], None]:
    """Hold back warnings about Ansible's configuration in the server; return a function that restores them for runs."""
    config = importlib.import_module("ansible.constants").config
    taken = {name: getattr(config, name) for name in _CONFIG_WARNINGS}
    for name, remarks in taken.items():
        setattr(config, name, type(remarks)())

    def give_back() -> None:
        for name, remarks in taken.items():
            setattr(config, name, remarks)

    return give_back


def _preparations(contents: Sequence[Path]) -> Iterator[Preparation]:
    documents = importlib.import_module("rolecall.runs.ansible_patches.parsed_yaml")
    templates = importlib.import_module("rolecall.runs.ansible_patches.compiled_templates")
    parsed = documents.Documents.of_roles(contents)
    yield parsed
    yield templates.Templates.of_documents([document.original for document in parsed.by_path.values()])


def _import_ansible() -> None:
    importlib.import_module("ansible.cli.playbook")
    loader = importlib.import_module("ansible.plugins.loader")
    loader.init_plugin_loader([])
    for name in (
        "ansible.executor.process.worker",
        "ansible.module_utils._internal._ansiballz._loader",
        "ansible._internal._templating._engine",
        "rolecall.runs.ansible_patches.forked_modules",
        "rolecall.runs.ansible_patches.in_process_tasks",
        "rolecall.runs.planned.hooks",
    ):
        importlib.import_module(name)


def _look_up_plugins() -> None:
    loader = importlib.import_module("ansible.plugins.loader")
    constants = importlib.import_module("ansible.constants")
    _read_vars_plugins(loader)
    for kind in _PLUGIN_KINDS:
        with suppress(Exception):  # a plugin that cannot be loaded is reported by the run that needs it
            list(getattr(loader, f"{kind}_loader").all(class_only=True))
    list(loader.filter_loader.all())
    list(loader.test_loader.all())
    wanted = {
        "callback": [constants.DEFAULT_STDOUT_CALLBACK, "default"],
        "inventory": list(constants.INVENTORY_ENABLED),
        "strategy": [constants.DEFAULT_STRATEGY],
        "connection": ["local", "ansible.builtin.local"],
        "shell": ["sh"],
        "cache": [constants.CACHE_PLUGIN],
        "action": ["normal", "ansible.legacy.normal"],
    }
    for kind, names in wanted.items():
        for name in names:
            getattr(loader, f"{kind}_loader").get(name, class_only=True)


def _read_vars_plugins(loader: ModuleType) -> None:
    """Import vars plugins and read their options, but not through their loader, which would keep instances."""
    package = importlib.import_module("ansible.plugins.vars")
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        name = found.name.rpartition(".")[2]
        loader.vars_loader._load_config_defs(name, module, module.__file__)  # noqa: SLF001 - what it does itself


def _fill_caches() -> None:
    """Do what every run does and what only fills caches: parse arguments, compile templates, encode results."""
    importlib.import_module("ansible.cli.playbook").PlaybookCLI(["ansible-playbook"]).init_parser()
    template = importlib.import_module("ansible.template")
    tags = importlib.import_module("ansible._internal._datatag._tags")
    engine = template.Templar(loader=None, variables={"name": [1]})
    for text in ("{{ name }}", "{{ name | length }} {{ name | default([]) }}", "name is defined and name != [2]"):
        engine.template(tags.TrustedAsTemplate().tag(text))
    json = importlib.import_module("ansible.module_utils.common.json")
    for direction in json.Direction:
        json.get_module_encoder("legacy", direction)
        json.get_module_decoder("legacy", direction)


def _modules_in_use(contents: Iterable[Path]) -> Iterator[str]:
    found: set[str] = set()
    for folder in contents:
        for pattern in _TASK_FILES:
            for path in folder.rglob(pattern) if folder.is_dir() else [folder]:
                with suppress(OSError):
                    found.update(_TASK.findall(path.read_text(encoding="utf-8", errors="replace")))
    yield from found


def _prepare_module(name: str) -> None:
    """Import what a module needs and load the action plugin of the same name."""
    loader = importlib.import_module("ansible.plugins.loader")
    loader.action_loader.get(name, class_only=True)
    module_common = importlib.import_module("ansible.executor.module_common")
    found = loader.module_loader.find_plugin_with_context(name, ".py")
    if not found.plugin_resolved_path:
        return
    full_name = module_common._get_ansible_module_fqn(found.plugin_resolved_path)  # noqa: SLF001 - Ansible's own rule
    package = full_name.rpartition(".")[0]
    importlib.import_module(package)
    source = Path(found.plugin_resolved_path).read_bytes()
    for imported in _imports(ast.parse(source), package):
        with suppress(Exception):  # optional ones may be missing
            importlib.import_module(imported)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
