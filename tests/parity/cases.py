"""The cases of the parity suite: content, settings, and a sign that the case has done what it is for.

A case's content lies in the folder of its name under `content`: a playbook `site.yml`, or the role `roles/<name>`.
Settings may name `{project}`, the copy of that folder, `{scratch}`, a folder for what a play leaves, and `{home}`, an
empty folder. `status` and `says` keep a case from proving nothing: two runs that fail alike for want of a file would be
equal too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests import CORE

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rule and the content that shows it.

    `modules` says where odd modules lie: in a collection, or in the role itself. `environment` is the operator's own
    (a warm server is started in it), `job_environment` is added to the run, and `file_environment` by the workspace's
    `env/envvars`. `says` are texts that it must have printed, `ordinary` the reasons for which parts of it may take
    the ordinary path. `ordered` is False when the order of tasks is left to chance, as by the strategy free.
    """

    name: str
    rule: str
    status: str = "successful"
    says: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    cmdline: str = ""
    verbosity: int = 2
    environment: Settings = field(default_factory=dict)
    job_environment: Settings = field(default_factory=dict)
    file_environment: Settings = field(default_factory=dict)
    timeout_seconds: float | None = 600
    ordered: bool = True
    modules: Literal["collection", "role"] = "collection"

    variant: str = ""

    @property
    def title(self) -> str:
        """The name of the case in a list of tests."""
        return f"{self.name} {self.variant}".strip()


def _unsafe(text: str) -> dict[str, str]:
    return {"__ansible_unsafe": text}


# Before 2.19, ansible-core runs a role's module in place of its own of the same name.
_ANSIBLES_OWN = () if CORE < (2, 19) else ("pong",)
_OF_A_ROLE = ("it belongs to a role or a playbook",)

_CASES = (
    Case(
        name="loops",
        rule="loops give each item its own result, in order, nested ones too",
        says=("word 2", "[True, True] [1, 0, 'none']", "b2 b"),
        status="successful",
    ),
    Case(
        name="blocks",
        rule="rescue and always run as written, and only what was not rescued is a failure",
        status="failed",
        says=("Fail in the block rc=1", "inner rescued", "'nothing' is undefined", "cleaned", "this one stands"),
    ),
    Case(
        name="handlers", rule="handlers run once, in their order, when flushed and at the end", says=("Chain", "Last")
    ),
    Case(
        name="roles_and_tasks",
        rule="included and imported roles and tasks, and dependencies, find the same files and variables",
        status="failed",
        says=("dependency", "imported in roles_and_tasks", "default left", "special", "missing.yml"),
    ),
    Case(
        name="conditions",
        rule="register, when, changed_when, failed_when, assert and set_stats mean the same",
        status="failed",
        says=("all is well", "found 3"),
    ),
    Case(
        name="until", rule="retries and their attempts are counted", status="failed", says=("2 2", "FAILED - RETRYING")
    ),
    Case(
        name="async",
        rule="tasks in the background are waited for, looked after, cleaned up and cut off",
        ordinary=("it runs in the background",),
        status="failed",
        says=("ASYNC OK", "Timeout exceeded"),
    ),
    Case(
        name="delegation",
        rule="delegated tasks, delegated facts and hosts that cannot be reached",
        ordinary=("its connection is ssh",),
        status="failed",
        says=("localhost hello", "other none here", "UNREACHABLE"),
    ),
    Case(
        name="become",
        rule="become takes the ordinary path, and a refusal is told in the same words",
        status="failed",
        says=("asked", "you may not"),
        ordinary=("it runs as another user",),
        environment={"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"},
    ),
    Case(
        name="task_environment",
        rule="a task's environment reaches its module and command, and nothing after it",
        ordinary=("its environment sets PATH", "its environment sets PYTHONPATH"),
        says=(
            "block task task operator",
            "told by a program of the role",
            "found by PYTHONPATH",
        ),
        environment={"FROM_OPERATOR": "operator"},
    ),
    Case(
        name="task_timeout",
        rule="a task that takes longer than its timeout fails, in a command and in a module",
        status="failed",
        says=("expected time frame" if CORE < (2, 19) else "Timed out after 1 second", "Sleep in a module"),
    ),
    Case(name="module_defaults", rule="defaults of modules apply by every name", says=("said by default",)),
    Case(
        name="role_module_utils",
        rule="the helpers of roles are found in the same order, and are fresh for each module",
        ordinary=_OF_A_ROLE,
        says=("of role one",),
    ),
    Case(
        name="role_library",
        rule="a role's own modules: arguments, warnings, deprecations, facts, differences, hidden passwords",
        ordinary=_OF_A_ROLE,
        status="failed",
        says=("paint is wet", "the password is ********", "the role's own", *_ANSIBLES_OWN, "taste", "hot"),
    ),
    Case(
        name="other_interpreter",
        rule="an interpreter of another virtual environment is used, though its Python is the same",
        status="failed",
        says=("False True", "/nowhere/python"),
        ordinary=("its interpreter is",),
    ),
    Case(
        name="nested_playbook",
        rule="a role may run ansible-playbook itself",
        says=("the word is inner", "'word' is undefined", "from within"),
    ),
    Case(
        name="vault",
        rule="the words of --ansible-args open the vault, and what another password hides stays hidden",
        status="failed",
        says=("found in the vault", "a file in clear", "Decryption failed"),
        cmdline="--vault-password-file {project}/password",
    ),
    Case(
        name="no_log", rule="hidden results stay hidden everywhere", status="failed", says=("hidden due to the fact",)
    ),
    Case(
        name="custom_plugins",
        rule="filters, tests, lookups, actions, connections, strategies, vars and callbacks beside a playbook are used",
        ordinary=("its connection is counted",),
        says=("wordword True HELLO!", "given by a plugin", "twice", "wrapped", "connected", "the strategy begins"),
        environment={"ANSIBLE_STRATEGY_PLUGINS": "{project}/strategy_plugins"},
    ),
    Case(
        name="collection",
        rule="a collection's modules, helpers, filters, roles, redirections and tombstones are found by name",
        status="failed",
        says=("hello you", "hello from the depth", "[x] 42", "hello default", "it is gone"),
    ),
    Case(
        name="ansible_cfg",
        rule="the operator's ansible.cfg holds",
        says=("cfg x", "77 merge", "+new"),
        environment={"ANSIBLE_CONFIG": "{project}/ansible.cfg"},
    ),
    Case(
        name="facts",
        rule="facts are gathered, kept and forgotten",
        says=("Linux 3", "operator", "of a file", "of a program", "forgotten"),
        environment={"FROM_OPERATOR": "operator", "ANSIBLE_GATHERING": "implicit"},
    ),
    Case(
        name="check_mode",
        rule="with --check --diff nothing is written and everything is shown",
        says=("+line b", "True True"),
        cmdline="--check --diff",
    ),
    Case(
        name="unsafe_text",
        rule="a Jinja expression in data is never evaluated",
        status="successful" if CORE < (2, 19) else "failed",
        says=("{{ 6 * 7 }} and {{ lookup('pipe', 'id') }}", "{{ 7 * 7 }}", "ズンドコ"),
        variables={
            "evil": _unsafe("{{ 6 * 7 }}"),
            "nested": {"list": [_unsafe("{{ lookup('pipe', 'id') }}"), _unsafe("{% raw %}")]},
            "control": _unsafe("a\tb\n\u001b[31mc\u0000d"),
            "condition": _unsafe("{{ true }}"),
        },
    ),
    Case(
        name="shell_module",
        rule="modules that are no Python of the new style take the ordinary path",
        status="failed",
        says=("hello", "this is no JSON"),
        ordinary=_OF_A_ROLE,
    ),
    Case(
        name="commands",
        rule="command, shell, script and raw give the same output, exit codes and errors",
        status="failed",
        says=("bash here", "script with argument", "not-a-program"),
    ),
    Case(
        name="failing_modules",
        rule="a module that fails or crashes says the same, traceback and all",
        status="failed",
        says=("failed on purpose", "crashed on purpose", "not_installed_anywhere", "ended with a text"),
    ),
    Case(
        name="killed_modules",
        rule="a module that a signal kills is a failed task, and the play goes on",
        status="failed",
        says=("pong",),
    ),
    Case(name="rubbish", rule="what a module prints beside its result is treated alike", status="successful"),
    Case(
        name="large_result",
        rule="results of millions of characters arrive whole, in both directions",
        says=("3000000 3000 line 2999", "1500000"),
    ),
    Case(
        name="process_state",
        rule="each module finds a clean process: signals, folder, umask, streams, limits, modules",
    ),
    Case(
        name="working_directory",
        rule="commands, modules, lookups and templates work in the same folders",
        says=("beside", "from_files.txt"),
    ),
    Case(
        name="variables",
        rule="variables of an inventory folder, of files and of the play have the same precedence",
        says=("play file json all group first file", "second", '"one"'),
        environment={"ANSIBLE_INVENTORY": "{project}/inventory"},
    ),
    Case(
        name="several_hosts",
        rule="serial, free, run_once, throttle, forks and any_errors_fatal treat hosts alike",
        status="failed",
        says=("not b", "Each at its own pace", "All or nothing"),
        environment={"ANSIBLE_INVENTORY": "{project}/inventory"},
        cmdline="--forks 2",
        ordered=False,
    ),
    Case(
        name="end_early",
        rule="plays, hosts and roles end where meta says, and imported playbooks follow",
        says=("before", "after", "the end"),
    ),
    Case(
        name="tags",
        rule="tags and skipped tags of --ansible-args choose the tasks",
        says=("wanted", "given"),
        cmdline="--tags wanted --skip-tags unwanted -e from_args=given",
    ),
    Case(
        name="syntax_error",
        rule="a role that cannot be read fails with the same place and words",
        status="failed",
        says=("nonsense",),
    ),
    Case(
        name="undefined_variable",
        rule="errors in templates say what and where",
        status="failed",
        says=("'nothing' is undefined", "not_a_filter", "division by zero"),
    ),
    Case(
        name="argument_specs",
        rule="a role's arguments are checked",
        status="failed",
        says=("Validation of arguments failed",),
        variables={"count": "many", "kind": "c"},
    ),
    Case(
        name="files",
        rule="files, templates and folders come out byte by byte the same",
        status="failed",
        says=("Found", "Destination directory /proc/nowhere does not exist"),
    ),
    Case(
        name="without_workers",
        rule="a task that needs no worker process does what it does in one, and one that comes to need it does it once",
        status="failed",
        says=(
            "words a b, deep c",
            "1 then 1 calls",
            "calls 1, environment clean",
            'one;line of scratch"',
            "plain;first;second;plain;again;again",
            "A worker was found in a dead state" if CORE < (2, 19) else "errantly",
        ),
    ),
    Case(
        name="libraries",
        rule="libraries that look at the environment, when they are imported or later, find that of their run or task",
        says=(
            "run http://run.test:1 http://run.test 05 run.pem",
            "task http://task.test:1 http://task.test 09 task",
            "next http://run.test:1 http://run.test 05 config-of-run",
            "05 Asia/Karachi http://run.test:1",
        ),
        ordinary=("its environment sets LC_ALL",),
        job_environment={
            "HTTPS_PROXY": "http://run.test:1",
            "https_proxy": "http://run.test:1",
            "KUBECONFIG": "{scratch}/config-of-run",
            "REQUESTS_CA_BUNDLE": "{project}/run.pem",
            "SSL_CERT_FILE": "{project}/run.pem",
            "TZ": "Asia/Karachi",
            "K8S_AUTH_HOST": "http://run.test",
        },
    ),
    Case(name="requeue", rule="the wish to run again and statistics reach the operator"),
    Case(
        name="remarks_on_settings",
        rule="what Ansible has to say of ansible.cfg is said by each run, once",
        environment={"ANSIBLE_CONFIG": "{project}/ansible.cfg"},
        says=("PARAMIKO_HOST_KEY_AUTO_ADD option" if CORE < (2, 19) else "DEFAULT_JINJA2_NATIVE option",),
    ),
    Case(
        name="operator_sdk_names",
        rule="the names of operator_sdk.util, long and short, lead to our modules when nothing else is installed",
        status="failed",
        says=("found 'soon'", "missing required arguments: name"),
    ),
    Case(
        name="installed_names",
        rule="an operator_sdk.util that is installed is used instead of ours",
        environment={"ANSIBLE_COLLECTIONS_PATH": "{project}/collections"},
        says=("this one was installed",),
    ),
    Case(name="too_slow", rule="a run over its timeout is ended and says so", status="timeout", timeout_seconds=20),
)

FIRST = Case(
    name="settings",
    rule="settings of one run",
    says=("one", "3 11", "first x"),
    environment={"WORD": "one", "LANG": "C.UTF-8", "ANSIBLE_FORKS": "3", "ANSIBLE_FILTER_PLUGINS": "{project}/first"},
    job_environment={"ANSIBLE_TIMEOUT": "11", "TZ": "UTC"},
    file_environment={"ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false", "ANSIBLE_TASK_TIMEOUT": "77"},
)
SECOND = Case(
    name="settings",
    rule="contradicting settings of the next run",
    says=("two", "4 12", "second x"),
    ordinary=("variables differ from the server's",),
    environment={"WORD": "two", "LANG": "C", "ANSIBLE_FORKS": "4", "ANSIBLE_FILTER_PLUGINS": "{project}/second"},
    job_environment={"ANSIBLE_TIMEOUT": "12", "TZ": "Asia/Tokyo"},
    file_environment={"ANSIBLE_HASH_BEHAVIOUR": "merge"},
)

_ALSO_AWAY_FROM_HOME = frozenset({"async", "files", "nested_playbook", "working_directory"})
"""Cases that use the home directory, each in its way: run once more by an operator whose HOME passwd does not say.

OpenShift gives containers a user at random, whom the passwd file does not know or places elsewhere.
"""

_ALSO_BY_THE_ROLE = frozenset({"role_library", "failing_modules"})
"""Cases run once more with modules of the role itself, which take the ordinary path regardless of what they do."""

CASES = (
    *_CASES,
    SECOND,
    *(
        replace(case, environment={**case.environment, "HOME": "{home}"}, variant="away from home")
        for case in _CASES
        if case.name in _ALSO_AWAY_FROM_HOME
    ),
    *(
        replace(case, modules="role", ordinary=_OF_A_ROLE, variant="by the role's own modules")
        for case in _CASES
        if case.name in _ALSO_BY_THE_ROLE
    ),
    *(
        replace(case, environment={"PYTHONUNBUFFERED": "1"}, variant="unbuffered")
        for case in _CASES
        if case.name == "role_library"
    ),
)
