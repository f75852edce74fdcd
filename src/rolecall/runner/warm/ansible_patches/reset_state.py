"""State that ansible-core and ansible-runner compute on import, reset for one run.

The server has imported ansible-core with the settings that all runs of the operator share. The environment variables
``PER_RUN`` are specific to each run; a run that differs in others can't be forked. The table in
docs/adr/0008-warm-plays.md lists this state and how each child resets it.
"""

import atexit
import importlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from multiprocessing import util as multiprocessing_util
from typing import Any

from rolecall.runner.warm.ansible_patches.event_channel import EventWriter
from rolecall.system.wrapping import wrap

PER_RUN = frozenset(
    {"ANSIBLE_LOCAL_TEMP", "ANSIBLE_ROLES_PATH", "ANSIBLE_CACHE_PLUGIN_CONNECTION", "AWX_ISOLATED_DATA_DIR"}
)
"""Variables that differ between runs; whatever reads one of them on import is reset here."""

_RANDOM_LIMIT = 0x7FFFFFFF
_CALLBACK = "ansible.plugins.callback.awx_display"


def reset_for_run(before: Mapping[str, str], event_descriptor: int | None) -> None:
    """Reset everything that depends on the environment, the terminal or random numbers; set the environment first.

    The descriptor is that of `EventChannel`; without one, events go through files.
    """
    atexit.register(multiprocessing_util._exit_function)  # type: ignore[attr-defined] # noqa: SLF001 - its own hook
    _constants({name for name in PER_RUN if before.get(name) != os.environ.get(name)})
    _display()
    _events(event_descriptor)
    _randomness()
    _collection_loader()
    set_kubeconfig()


def report_config_warnings() -> None:
    """Print the warnings about Ansible's configuration that a cold run prints on import."""
    from ansible import constants  # noqa: PLC0415 - only the server has Ansible
    from ansible.utils import display  # noqa: PLC0415 - as above

    if hasattr(display, "_report_config_warnings"):
        display._report_config_warnings(display._deprecator.ANSIBLE_CORE_DEPRECATOR)  # noqa: SLF001 - its own way
    else:  # before 2.19
        constants.handle_config_noise()


def defer_display_events() -> None:
    """Remove the wrappers of ansible-runner's callback from the display until ansible-playbook loads its callbacks.

    When the callback is imported, it wraps the methods of Ansible's display, so that each message becomes an event. A
    cold run imports it after it has read the playbook; earlier messages, for example a syntax error, are plain text,
    and ansible-runner makes an event of each line. The server has imported the callback already.
    """
    from ansible.executor.task_queue_manager import TaskQueueManager  # noqa: PLC0415 - only the server has Ansible
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    callback = sys.modules.get(_CALLBACK)
    if callback is None:
        return
    wrappers = {
        name: method
        for name, method in vars(Display).items()
        if getattr(method, "__globals__", None) is vars(callback) and hasattr(method, "__wrapped__")
    }
    for name, wrapper in wrappers.items():
        setattr(Display, name, wrapper.__wrapped__)

    def load_callbacks(load: Callable[[Any], None], manager: Any) -> None:
        for name, wrapper in wrappers.items():
            setattr(Display, name, wrapper)
        load(manager)

    wrap(TaskQueueManager, "load_callbacks", load_callbacks)


def set_kubeconfig() -> None:
    """Set the default kubeconfig of the Kubernetes client again, which it reads from the environment on import."""
    for name in ("kubernetes.config", "kubernetes.config.kube_config"):
        if module := sys.modules.get(name):
            module.KUBE_CONFIG_DEFAULT_LOCATION = os.environ.get("KUBECONFIG", "~/.kube/config")  # type: ignore[attr-defined]


def _constants(changed: set[str]) -> None:
    from ansible import constants  # noqa: PLC0415 - only the server has Ansible

    for name, definition in constants.config.get_configuration_definitions().items():
        if any(entry["name"] in changed for entry in definition.get("env") or ()):
            constants.set_constant(name, constants.config.get_config_value(name, variables=vars(constants)))


def _display() -> None:
    """Initialize Ansible's display again: terminal, width, colors, streams, and warnings that were shown already."""
    from ansible.utils import color  # noqa: PLC0415 - only the server has Ansible
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    importlib.reload(color)
    Display().__init__()


def _events(descriptor: int | None) -> None:
    """Reset ansible-runner's callback too: its events go to the channel or files of this run."""
    if module := sys.modules.get(_CALLBACK):
        context = module.event_context = module.EventContext()  # type: ignore[attr-defined]
        if descriptor is not None and (files := getattr(context, "cache", None)):
            context.cache = EventWriter(descriptor, module.AnsibleJSONEncoderLocal, files.set)


def _randomness() -> None:
    """Draw new random numbers, so that ids of tasks and plays differ from those of other runs."""
    from ansible.utils import vars as ansible_vars  # noqa: PLC0415 - only the server has Ansible

    random.seed()
    ansible_vars.random_int = f"{random.randint(0, _RANDOM_LIMIT):08x}"[:8]  # noqa: S311 - no secret


def _collection_loader() -> None:
    """Keep the collection loader of the server: a run with another search path is not forked."""
    from ansible import cli  # noqa: PLC0415 - only the server has Ansible
    from ansible.plugins import loader  # noqa: PLC0415 - as above

    def init_plugin_loader(prefix: list[str] | None = None) -> None:
        loader._load_plugin_filter()  # noqa: SLF001 - what the replaced function does first
        if prefix:
            raise NotImplementedError("ansible-playbook has no option for collections")

    cli.init_plugin_loader = init_plugin_loader
