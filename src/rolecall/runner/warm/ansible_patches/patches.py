"""The table of patches: the functions that each replaces or relies on, and whether it can be used.

A patch is used if each of its functions is, by its fingerprint, the same as in a tested release, and if the patches
that it needs are used. An unknown function disables its own patch and those that need it; runs still fork, without
these patches. Only without ``fork`` do runs start cold.

The names of patches appear in the log, in ``rolecall version``, and as a label of a metric. Nothing here imports
Ansible: a function that a release has moved must not end the fork server before this check.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final, Literal

from rolecall.runner.config.ansible_config import collection_directories, release_numbers
from rolecall.runner.warm import shared_objects
from rolecall.runner.warm.ansible_patches.fingerprints import ABSENT, Fingerprints
from rolecall.runner.warm.shared_objects import reason_not_to_share

_COLLECTION = "ansible_collections.kubernetes.core"
_PACKAGES = {
    "ansible": "ansible-core",
    "ansible_runner": "ansible-runner",
    "ansible_collections": "kubernetes.core",
    "kubernetes": "kubernetes",
}
"""The package of a module, by the first part of its name."""

TRUSTS_TEMPLATES = (5, 3, 0)
"""The first release of kubernetes.core whose option ``template`` ansible-core 2.19 and newer render."""

SHARED_OBJECTS = "shared-objects"
"""The patch that lets runs share the objects of the server."""

VARIABLE: Final = "ROLECALL_PATCHES"
"""Names experimental patches to use, and after "-" patches not to use, separated by commas."""

State = Literal["in use", "disabled", "not needed"]
NO_PROBLEMS: Final = MappingProxyType[str, str]({})
_RESET_STATE = f"{__package__}.reset_state"
_WARM = __package__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch: its name, its module, and its functions as ``module:qualified.name``.

    It can't work without the patches in ``needs``. ``optional`` are functions that some releases don't have, which the
    patch handles. With ``before``, the patch is for versions of kubernetes.core below that one.
    """

    name: str
    module: str
    functions: tuple[str, ...]
    optional: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    before: tuple[int, ...] = ()
    reason_not_to_use: Callable[[], str] = str
    """Returns why this interpreter can't use the patch, an empty string if it can."""

    def load(self) -> ModuleType:
        """Import the module of the patch, and with it Ansible. Raises any exception that a changed Ansible causes."""
        return import_module(self.module)


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Whether a patch is used, and the reason if it isn't.

    ``lacks`` names the patch that it needs if that alone is the reason.
    """

    name: str
    state: State
    reason: str = ""
    lacks: str = ""

    @property
    def is_in_use(self) -> bool:
        """Whether runs use the patch."""
        return self.state == "in use"


def patch_of(
    name: str,
    table: str,
    *,
    module: str = "",
    needs: tuple[str, ...] = ("fork",),
    before: tuple[int, ...] = (),
) -> Patch:
    """Return a patch, by default in the module of its name in this package.

    Each line of ``table`` has a module and names in it, after "?" if these are optional.
    """
    functions: dict[bool, list[str]] = {True: [], False: []}
    for line in table.strip().splitlines():
        source, _, names = line.strip().removeprefix("? ").partition(": ")
        functions["? " in line].extend(f"{source}:{each}" for each in names.split())
    module = module or f"{__package__}.{name.replace('-', '_')}"
    return Patch(name, module, tuple(functions[False]), tuple(functions[True]), needs, before)


def experimental(patch: Patch) -> Patch:
    """Return a patch, used only if the variable names it."""

    def reason_to_wait() -> str:
        return "" if patch.name in _names_in_variable() else f"experimental; {VARIABLE}={patch.name} turns it on"

    return replace(patch, reason_not_to_use=reason_to_wait)


PATCHES = (
    # Only the functions that the fork of ansible-playbook can't do without: every other patch needs it.
    patch_of(
        "fork",
        """
        ansible.cli: init_plugin_loader
        ansible.cli.playbook: main
        ansible.constants: set_constant
        ansible.plugins.loader: _load_plugin_filter init_plugin_loader
        ansible.utils.vars: get_unique_id random_int
        ansible_runner.display_callback.callback.awx_display: EventContext.__init__ event_context
        """,
        module=_RESET_STATE,
        needs=(),
    ),
    patch_of(
        "config-warnings",
        """
        ansible.config.manager: ConfigManager.DEPRECATED ConfigManager.WARNINGS
        ? ansible.constants: handle_config_noise
        ? ansible.utils.display: _report_config_warnings
        """,
        module=_RESET_STATE,
    ),
    patch_of(
        "display-events",
        """
        ansible.executor.task_queue_manager: TaskQueueManager.load_callbacks
        ansible_runner.display_callback.callback.awx_display: with_context with_verbosity display_with_context
        """,
        module=_RESET_STATE,
    ),
    patch_of(
        "caller-frames",
        """
        ? ansible.module_utils._internal._deprecator: get_caller_plugin_info
        ? ansible.module_utils._internal._stack: caller_frame iter_stack
        ? ansible.module_utils._internal._traceback: maybe_capture_traceback
        """,
    ),
    patch_of(
        "event-channel",
        """
        ansible_runner.display_callback.callback.awx_display: AnsibleJSONEncoderLocal EventContext
        ansible_runner.runner: Runner.event_callback
        """,
    ),
    patch_of(
        "parsed-yaml",
        """
        ansible.parsing.dataloader: DataLoader._get_file_contents DataLoader.load DataLoader.load_from_file copy
        ? ansible._internal._datatag._tags: TrustedAsTemplate
        ? ansible.module_utils._internal._datatag: AnsibleTagHelper.tags
        ? ansible.parsing.dataloader: DataLoader.get_text_file_contents
        ? ansible.template: trust_as_template
        """,
    ),
    # Compiles the templates in parsed files. `AnsibleEnvironment.compile` is Jinja's own today.
    patch_of(
        "compiled-templates",
        """
        ? ansible._internal._templating._engine: TemplateEngine.environment
        ? ansible._internal._templating._jinja_bits: AnsibleEnvironment.__init__ AnsibleEnvironment.compile
        ? ansible._internal._templating._jinja_bits: AnsibleEnvironment.compile_expression
        ? ansible._internal._templating._jinja_bits: AnsibleEnvironment.from_string AnsibleLexer _TemplateCompileContext
        ? ansible.playbook.conditional: Conditional._check_conditional
        ? ansible.template: AnsibleEnvironment AnsibleEnvironment.compile JinjaPluginIntercept.__getitem__
        ? ansible.template: Templar.do_template
        """,
        needs=("parsed-yaml",),
    ),
    patch_of(
        "forked-modules",
        """
        ansible.executor.module_common: _extract_interpreter _find_module_utils _get_ansible_module_fqn _get_shebang
        ansible.executor.module_common: modify_module
        ansible.module_utils.common.warnings: _global_deprecations _global_warnings
        ansible.plugins.action: ActionBase._configure_module ActionBase._execute_module
        ansible.plugins.action: ActionBase._is_pipelining_enabled ActionBase._low_level_execute_command modify_module
        ansible.plugins.connection.local: Connection.exec_command
        ? ansible.executor.module_common: ANSIBALLZ_TEMPLATE _BuiltModule
        ? ansible.module_utils._internal._ansiballz._loader: run_module
        ? ansible.module_utils._internal._traceback: _is_module_traceback_enabled _is_traceback_enabled
        ? ansible.module_utils._internal._secrets: SecretMasker _secret_masker
        ? ansible.module_utils._internal: get_controller_serialize_map import_controller_module is_controller
        ? ansible.module_utils.basic: _ANSIBLE_PROFILE _PARSED_MODULE_ARGS
        ? ansible.module_utils.common.json: AnsibleJSONEncoder get_module_encoder
        """,
    ),
    patch_of(
        "json-kubeconfig",
        """
        kubernetes.config.kube_config: KubeConfigMerger yaml
        """,
    ),
    experimental(
        patch_of(
            "module-host",
            """
            ansible.module_utils.basic: AnsibleModule
            ansible_collections.kubernetes.core.plugins.module_utils.k8s.client: _pool cache create_api_client
            ansible_collections.kubernetes.core.plugins.module_utils.k8s.client: get_api_client
            kubernetes.client.configuration: Configuration
            kubernetes.config.kube_config: _cleanup_temp_files _create_temp_file_with_content _temp_files
            ? ansible_collections.kubernetes.core.plugins.modules.k8s: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_cluster_info: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_info: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_json_patch: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_log: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_rollback: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_scale: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_service: main
            ? ansible_collections.kubernetes.core.plugins.modules.k8s_taint: main
            """,
            module=f"{_WARM}.module_host",
            needs=("forked-modules",),
        ),
    ),
    patch_of(
        "temporary-directories",
        """
        ansible.plugins.action: ActionBase._make_tmp_path ActionBase._remove_tmp_path ActionBase._should_remove_tmp_path
        ansible.plugins.shell: ShellBase._generate_temp_dir_name
        """,
    ),
    # The wrappers of forked-modules restart a task in a worker if it would start a program.
    patch_of(
        "in-process-tasks",
        """
        ansible.executor.process.worker: WorkerProcess WorkerQueue
        ansible.executor.task_executor: TaskExecutor._get_action_handler_with_module_context
        ansible.executor.task_executor: TaskExecutor._get_connection TaskExecutor._get_loop_items TaskExecutor._run_loop
        ansible.executor.task_executor: TaskExecutor.run
        ansible.executor.task_queue_manager: FinalQueue
        ansible.plugins.strategy: StrategyBase._queue_task WorkerProcess
        ansible.utils.display: Display.set_queue
        ? ansible._internal._task: TaskContext
        ? ansible._internal._templating._jinja_plugins: JinjaPluginIntercept._invoke_plugin
        ? ansible.executor.task_queue_manager: _Envelope
        ? ansible.module_utils._internal._secrets: NewSecretTracker
        ? ansible.template: JinjaPluginIntercept.__getitem__
        """,
        needs=("forked-modules",),
    ),
    patch_of(
        "known-discovery",
        """
        ansible_collections.kubernetes.core.plugins.module_utils.client.discovery: Discoverer
        ansible_collections.kubernetes.core.plugins.module_utils.client.resource: ResourceList.__init__
        kubernetes.dynamic.discovery: Discoverer ResourceGroup.__init__
        kubernetes.dynamic.resource: Resource.__init__
        """,
        needs=("forked-modules",),
    ),
    patch_of(
        "trusted-templates",
        """
        ansible.template: Templar.do_template
        ansible_collections.kubernetes.core.plugins.action.k8s: ActionModule.get_template_data
        ansible_collections.kubernetes.core.plugins.action.k8s: ActionModule.load_template
        ? ansible.template: trust_as_template
        """,
        before=TRUSTS_TEMPLATES,
    ),
    # Of CPython: it relies on no function, but on the layout of objects.
    Patch(SHARED_OBJECTS, shared_objects.__name__, (), needs=("fork",), reason_not_to_use=reason_not_to_share),
)


def installed_patches(problems: Mapping[str, str] = NO_PROBLEMS) -> list[PatchStatus]:
    """Return the status of each patch for a run in the environment of this process. Raises OSError and ValueError.

    ``problems`` are reasons why patches can't be used, by name, besides those that this finds, and the variable. A name
    in the variable that no patch has is reported like a patch that can't be used.
    """
    named = _names_in_variable()
    disabled = {name[1:]: f"{VARIABLE} turns it off" for name in named if name.startswith("-")}
    found = patch_statuses(Fingerprints.load(), installed_search_path(os.environ), problems=disabled | dict(problems))
    unknown = {name.removeprefix("-") for name in named} - {status.name for status in found}
    reason = f"there is no such patch, but {VARIABLE} names it"
    return [*found, *(PatchStatus(name, "disabled", reason) for name in sorted(unknown))]


def patch_statuses(
    fingerprints: Fingerprints,
    search_path: Sequence[str],
    patches: Sequence[Patch] = PATCHES,
    problems: Mapping[str, str] = NO_PROBLEMS,
) -> list[PatchStatus]:
    """Return the status of each patch for the sources in these directories; a patch comes after those that it needs."""
    functions = dict.fromkeys(function for patch in patches for function in (*patch.functions, *patch.optional))
    found = fingerprints.releases_of(functions, search_path)
    statuses: dict[str, PatchStatus] = {}
    for patch in patches:
        status = _status(patch, found, statuses, search_path)
        if status.is_in_use and patch.name in problems:
            status = PatchStatus(patch.name, "disabled", problems[patch.name])
        statuses[patch.name] = status
    return list(statuses.values())


def _names_in_variable() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").replace(" ", "").split(",") if name]


def names_in_use(statuses: Iterable[PatchStatus]) -> frozenset[str]:
    """Return the names of the patches that runs use; without ``fork``, no run can be forked."""
    return frozenset(status.name for status in statuses if status.is_in_use)


def installed_search_path(environment: Mapping[str, str]) -> list[str]:
    """Return the directories where a run in this environment finds Python packages and collections, in this order."""
    return [*collection_directories(environment), *sys.path]


def _status(
    patch: Patch, found: Mapping[str, tuple[str, list[str]]], earlier: Mapping[str, PatchStatus], path: Sequence[str]
) -> PatchStatus:
    if any(package_of(function) == "kubernetes.core" for function in patch.functions) or patch.before:
        installed = kubernetes_core_version(path)
        if installed is None:
            return PatchStatus(patch.name, "not needed", "kubernetes.core isn't installed")
        if patch.before and release_numbers(installed) >= patch.before:
            return PatchStatus(patch.name, "not needed", f"kubernetes.core {installed} doesn't need it")
    if lacks := next((name for name in patch.needs if not earlier[name].is_in_use), ""):
        return PatchStatus(patch.name, "disabled", f"it needs {lacks}", lacks)
    if reason := patch.reason_not_to_use():
        return PatchStatus(patch.name, "not needed", reason)
    if function := _unknown(patch, found):
        package, problem = package_of(function), "missing" if found[function][0] == ABSENT else "unknown"
        return PatchStatus(patch.name, "disabled", f"{function} of {package} {_version(package, path)} is {problem}")
    return PatchStatus(patch.name, "in use")


def _unknown(patch: Patch, found: Mapping[str, tuple[str, list[str]]]) -> str:
    """Return the first function that isn't as in any tested release; an empty string if there is none.

    That an optional function is absent counts as known if a tested release lacks it too and has all others as here.
    """
    for function in (*patch.functions, *patch.optional):
        digest, releases = found[function]
        if digest == ABSENT:
            if function not in patch.optional:
                return function
            others = [each for each in (*patch.functions, *patch.optional) if package_of(each) == package_of(function)]
            releases = list(set(releases).intersection(*(found[each][1] for each in others)))
        if not releases:
            return function
    return ""


def package_of(function: str) -> str:
    """Return the name of the package with a function or module."""
    return _PACKAGES[function.partition(":")[0].partition(".")[0]]


def _version(package: str, search_path: Sequence[str]) -> str:
    if package == "kubernetes.core":
        return kubernetes_core_version(search_path) or "?"
    return next((each.version for each in distributions(name=package, path=list(search_path))), "?")


def kubernetes_core_version(search_path: Sequence[str]) -> str | None:
    """Return the version in the manifest of kubernetes.core; "?" if it has none, None if it isn't installed."""
    for directory in search_path:
        collection = Path(directory, *_COLLECTION.split("."))
        if os.path.isdir(collection):  # noqa: PTH112 - pathlib raises PermissionError
            with suppress(OSError, ValueError, LookupError, TypeError):
                return str(json.loads((collection / "MANIFEST.json").read_bytes())["collection_info"]["version"])
            return "?"
    return None
