"""ansible-playbook for a planned run: the ``program`` of its input.

It changes functions of ansible-core before ansible-playbook starts. A planned run isn't possible without these changes,
so it fails if one of the functions is unknown. ``python -m tools.fingerprints`` writes the fingerprints.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rolecall.runner.warm.ansible_patches.fingerprints import Fingerprints
from rolecall.runner.warm.ansible_patches.patches import PatchStatus, installed_search_path, patch_of, patch_statuses
from rolecall.workbench.planned.journal import DIRECTORY_VARIABLE, set_clock

FINGERPRINTS: Final = Path(__file__).with_name("fingerprints.json")

# Without any of these, a plan could change something. `getattr` and `getitem` are Jinja's own today.
PATCH: Final = patch_of(
    "planned-runs",
    """
    ansible.executor.task_executor: TaskExecutor._get_action_handler_with_module_context TaskExecutor._run_loop
    ansible.executor.task_executor: TaskExecutor.run time
    ansible.executor.task_queue_manager: TaskQueueManager.run
    ansible.parsing.dataloader: DataLoader.path_dwim DataLoader.path_dwim_relative
    ansible.parsing.dataloader: DataLoader.path_dwim_relative_stack
    ansible.plugins.action: ActionBase._execute_module
    ansible.plugins.loader: PluginLoader.get_with_context
    ansible.plugins.strategy: StrategyBase._execute_meta StrategyBase._process_pending_results
    ansible.plugins.strategy: StrategyBase._queue_task
    ansible.vars.manager: VariableManager.set_nonpersistent_facts
    ? ansible._internal._task: TaskContext TaskContext.get_register_projections TaskContext.update_task_vars
    ? ansible._internal._task: UnifiedTaskResult.create_from_action_exception
    ? ansible._internal._task: UnifiedTaskResult.finalize_registered_values
    ? ansible._internal._templating._transform: _type_transform_mapping
    ? ansible.executor.module_common: get_action_args_with_defaults
    ? ansible.executor.task_executor: TaskExecutor._execute TaskExecutor._execute_internal remove_omit
    ? ansible.module_utils._internal._datatag: _untaggable_types
    ? ansible.template.vars: AnsibleJ2Vars.__getitem__
    ? ansible.template: AnsibleContext.resolve_or_missing AnsibleEnvironment.getattr AnsibleEnvironment.getitem
    ? ansible.template: Templar.template
    """,
    module=f"{__package__}.hooks",
    needs=(),
)


def patch_status() -> PatchStatus:
    """Return whether a run in the environment of this process can be planned. Raises OSError and ValueError."""
    (status,) = patch_statuses(Fingerprints.load(FINGERPRINTS), installed_search_path(os.environ), [PATCH])
    return status


def main(arguments: Sequence[str]) -> None:
    """Run ansible-playbook with these arguments, its own name first, if its functions are known. Raises SystemExit."""
    status = patch_status()
    if not status.is_in_use:
        sys.exit(f"This Ansible can't be planned with, use a tested release: {status.reason}")
    # Imported here: they import Ansible, which reads the environment of the run.
    from ansible.cli import playbook  # noqa: PLC0415

    from rolecall.workbench.planned.tasks import PlanEnded  # noqa: PLC0415

    PATCH.load().install(Path(os.environ[DIRECTORY_VARIABLE]), dict(os.environ), set_clock(os.environ))
    try:
        playbook.main(list(arguments))
    except PlanEnded as ended:
        sys.exit(f"{ended}")


if __name__ == "__main__":
    main(["ansible-playbook", *sys.argv[1:]])
