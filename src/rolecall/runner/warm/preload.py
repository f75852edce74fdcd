"""Import and look up what runs need, in the server, before the first run.

All of this happens once instead of in every run: the server imports ansible-core, ansible-runner and the Kubernetes
client, finds plugins and reads their options, and loads collections and the code that modules need. None of it depends
on a run. Vars plugins are not instantiated: their loader keeps the instances, which belong to a run.
"""

import ast
import importlib
import importlib.util
import pkgutil
import re
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from rolecall.runner.warm.ansible_patches.patches import PATCHES, PatchStatus, installed_patches, names_in_use

COMMON_MODULES = ("ansible.legacy.setup", "ansible.legacy.command", "ansible.legacy.stat", "ansible.legacy.file")
_PLUGIN_KINDS = ("action", "become", "cache", "callback", "connection", "inventory", "shell", "strategy", "lookup")
_TASK = re.compile(r"^[\s-]*([a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_.]*)\s*:", re.MULTILINE)
_CONFIG_WARNINGS = ("_errors", "WARNINGS", "DEPRECATED")
_CLIENT_API, _DEPRECATED_CLIENT_API = "kubernetes.client.api", "kubernetes.client.apis"


def preload(
    contents: Sequence[Path], statuses: Sequence[PatchStatus]
) -> tuple[list[PatchStatus], list[Callable[[], None]]]:
    """Prepare for the roles and playbooks in these directories, with the patches that can be used.

    Return the patches again, without those that can't be imported, and the functions that install what was prepared in
    the child that becomes ansible-playbook.
    """
    names = names_in_use(statuses)
    restore_config_warnings = _hold_config_warnings() if "config-warnings" in names else lambda: None
    _import_ansible()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # each run prints it itself
        for fill in (_look_up_plugins, _fill_caches):
            with suppress(Exception):  # each run then looks up or computes the rest itself
                fill()
        for name in [*COMMON_MODULES, *sorted(_modules_in_use(contents))]:
            with suppress(Exception):  # a role may name a module that does not exist; its run reports that
                _prepare_module(name)
        with suppress(Exception):  # not every installation has the collection
            importlib.import_module("ansible.plugins.loader").action_loader.get("kubernetes.core.k8s", class_only=True)
        modules: dict[str, ModuleType] = {}
        problems: dict[str, str] = {}
        for patch in PATCHES:
            if patch.name in names:
                try:
                    modules[patch.name] = patch.load()
                except Exception as error:  # noqa: BLE001 - whatever it is, runs can do without the patch
                    problems[patch.name] = f"it can't be imported: {error}"
        usable = installed_patches(problems) if problems else list(statuses)
        preparations = []
        if "parsed-yaml" in names_in_use(usable):
            parsed = modules["parsed-yaml"].Documents.of_roles(contents)
            preparations.append(parsed.install)
            if "compiled-templates" in names_in_use(usable):
                documents = [document.original for document in parsed.by_path.values()]
                preparations.append(modules["compiled-templates"].Templates.of_documents(documents).install)
    restore_config_warnings()
    return usable, preparations


def _hold_config_warnings() -> Callable[[], None]:
    """Suppress warnings about Ansible's configuration in the server; return a function that restores them for runs."""
    manager = importlib.import_module("ansible.config.manager").ConfigManager
    # ansible-core before 2.19 reports them as soon as it has imported its constants.
    manager.WARNINGS, manager.DEPRECATED = _UnreportedSet(), _UnreportedList()
    config = importlib.import_module("ansible.constants").config
    held = {name: getattr(config, name) for name in _CONFIG_WARNINGS if hasattr(config, name)}
    for name, warnings in held.items():
        setattr(config, name, type(warnings)())

    def restore() -> None:
        for name, warnings in held.items():
            setattr(config, name, set(warnings) if isinstance(warnings, set) else list(warnings))

    return restore


class _UnreportedSet(set[str]):
    """A set that looks empty to the code that would report its elements."""

    def __bool__(self) -> bool:
        return False


class _UnreportedList(list[Any]):
    """A list that looks empty to the code that would report its elements."""

    def __bool__(self) -> bool:
        return False


def _import_ansible() -> None:
    _alias_deprecated_client()
    importlib.import_module("ansible.cli.playbook")
    loader = importlib.import_module("ansible.plugins.loader")
    loader.init_plugin_loader([])
    for name in (
        "ansible.executor.process.worker",
        "ansible.module_utils._internal._ansiballz._loader",
        "ansible._internal._templating._engine",
    ):
        with suppress(ImportError):  # not every version has it
            importlib.import_module(name)


def _look_up_plugins() -> None:
    loader = importlib.import_module("ansible.plugins.loader")
    constants = importlib.import_module("ansible.constants")
    package = importlib.import_module("ansible.plugins.vars")
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        # Not through their loader, which would keep instances.
        module = importlib.import_module(found.name)
        name = found.name.rpartition(".")[2]
        loader.vars_loader._load_config_defs(name, module, module.__file__)  # noqa: SLF001 - what it does itself
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


def _fill_caches() -> None:
    """Fill caches that every run uses: parse arguments, compile templates, encode results, initialize OpenSSL."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without authorities, which take longer than the rest
    importlib.import_module("ansible.cli.playbook").PlaybookCLI(["ansible-playbook"]).init_parser()
    template = importlib.import_module("ansible.template")
    trust = getattr(template, "trust_as_template", str)  # before 2.19, every text is trusted
    engine = template.Templar(loader=None, variables={"name": [1]})
    for text in ("{{ name }}", "{{ name | length }} {{ name | default([]) }}", "name is defined and name != [2]"):
        engine.template(trust(text))
    json = importlib.import_module("ansible.module_utils.common.json")
    for direction in getattr(json, "Direction", ()):
        json.get_module_encoder("legacy", direction)
        json.get_module_decoder("legacy", direction)
    result: Any = importlib.import_module("ansible._internal._task").UnifiedTaskResult  # since 2.21
    for yes, other in product((True, False), repeat=2):
        result.get_result_key_to_resolved_field_mapping(source_is_module=yes)
        result._get_field_name_to_result_key_mapping(for_callback=yes, for_round_trip=other)  # noqa: SLF001 - a cache


def _alias_deprecated_client() -> None:
    """Take the place of ``kubernetes.client.apis``, from which k8s_exec imports one API.

    Its own star import loads all of them with their models: since client 37, six times the CPU time of an older
    client's, and more than the rest of the server's start.
    """

    def attribute(name: str) -> object:
        try:
            return importlib.import_module(f"{_CLIENT_API}.{name}")
        except ModuleNotFoundError:
            return getattr(importlib.import_module(_CLIENT_API), name)

    package = ModuleType(_DEPRECATED_CLIENT_API)
    package.__dict__["__getattr__"] = attribute
    with suppress(ImportError):
        importlib.import_module("kubernetes.client").__dict__["apis"] = package
        sys.modules[_DEPRECATED_CLIENT_API] = package


def _modules_in_use(contents: Iterable[Path]) -> set[str]:
    found: set[str] = set()
    for content in contents:
        files = [*content.rglob("*.yml"), *content.rglob("*.yaml")] if content.is_dir() else [content]
        for path in files:
            with suppress(OSError):
                found.update(_TASK.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


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
            importlib.import_module(imported.replace(_DEPRECATED_CLIENT_API, _CLIENT_API))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
