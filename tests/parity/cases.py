"""The cases of the parity suite: content, settings, and a sign that the case has done what it is for.

A case's content lies in the directory of its name under `content`: a playbook `site.yml`, or the role `roles/<name>`.
Settings may name `{project}`, the copy of that directory, `{scratch}`, a directory for what a play leaves, and
`{home}`, an empty directory. `status` and `says` keep a case from proving nothing: two runs that fail alike because a
file is missing would be equal too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests import CORE

_MASKED = "********" if CORE < (2, 22) else "$REDACTED$"
"""What ansible-core shows instead of a secret; 2.22 masks decrypted values too."""

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
        rule="rescue and always run as written, and only unrescued failures count",
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
        rule="register, when, changed_when, failed_when, assert and set_stats have the same effect",
        status="failed",
        says=("all is well", "found 3"),
    ),
    Case(
        name="until", rule="retries and their attempts are counted", status="failed", says=("2 2", "FAILED - RETRYING")
    ),
    Case(
        name="async",
        rule="background tasks are awaited, polled, cleaned up and stopped",
        ordinary=("it runs in the background",),
        status="failed",
        says=("ASYNC OK", "Timeout exceeded"),
    ),
    Case(
        name="delegation",
        rule="delegated tasks, delegated facts and unreachable hosts",
        ordinary=("its connection is ssh",),
        status="failed",
        says=("localhost hello", "other none here", "UNREACHABLE"),
    ),
    Case(
        name="become",
        rule="become takes the ordinary path, and a rejection has the same message",
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
        rule="a task over its timeout fails, in a command and in a module",
        status="failed",
        says=("expected time frame" if CORE < (2, 19) else "Timed out after 1 second", "Sleep in a module"),
    ),
    Case(name="module_defaults", rule="defaults of modules apply by every name", says=("said by default",)),
    Case(
        name="role_module_utils",
        rule="role helpers are found in the same order and are new for each module",
        ordinary=_OF_A_ROLE,
        says=("of role one",),
    ),
    Case(
        name="role_library",
        rule="a role's own modules: arguments, warnings, deprecations, facts, differences, hidden passwords",
        ordinary=_OF_A_ROLE,
        status="failed",
        says=("paint is wet", f"the password is {_MASKED}", "the role's own", *_ANSIBLES_OWN, "taste", "hot"),
    ),
    Case(
        name="other_interpreter",
        rule="the interpreter of another virtual environment is used even with the same Python",
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
        rule="--ansible-args decrypts the vault, and values with another password stay encrypted",
        status="failed",
        says=("Decryption failed", *(("found in the vault", "a file in clear") if CORE < (2, 22) else (_MASKED,))),
        cmdline="--vault-password-file {project}/password",
    ),
    *(
        []
        if CORE < (2, 22)
        else [
            Case(
                name="secrets",
                rule="registered secrets are masked in every later output, wherever a task or module registers them",
                status="failed",
                says=("say $REDACTED$ twice", "$REDACTED$ is masked", "no $REDACTED$"),
            )
        ]
    ),
    Case(
        name="no_log", rule="hidden results stay hidden everywhere", status="failed", says=("hidden due to the fact",)
    ),
    Case(
        name="custom_plugins",
        rule="filters, tests, lookups, actions, connections, strategies, vars and callbacks next to a playbook apply",
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
        rule="--check --diff writes no file and shows each difference",
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
        rule="modules other than new-style Python take the ordinary path",
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
        rule="a failing or crashing module has the same output, including its traceback",
        status="failed",
        says=("failed on purpose", "crashed on purpose", "not_installed_anywhere", "ended with a text"),
    ),
    Case(
        name="killed_modules",
        rule="a module killed by a signal is a failed task, and the play continues",
        status="failed",
        says=("pong",),
    ),
    Case(name="rubbish", rule="output of a module around its result is treated alike", status="successful"),
    Case(
        name="large_result",
        rule="results of millions of characters arrive complete, in both directions",
        says=("3000000 3000 line 2999", "1500000"),
    ),
    Case(
        name="process_state",
        rule="each module finds a clean process: signals, directory, umask, streams, limits, modules",
    ),
    Case(
        name="working_directory",
        rule="commands, modules, lookups and templates work in the same directories",
        says=("beside", "from_files.txt"),
    ),
    Case(
        name="variables",
        rule="variables of an inventory directory, of files and of the play have the same precedence",
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
        rule="an unreadable role fails with the same place and message",
        status="failed",
        says=("nonsense",),
    ),
    Case(
        name="undefined_variable",
        rule="template errors have the same message and place",
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
        rule="files, templates and directories are equal byte by byte",
        status="failed",
        says=("Found", "Destination directory /proc/nowhere does not exist"),
    ),
    Case(
        name="without_workers",
        rule="a task without a worker process has the same effects, and a task that needs one later runs once",
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
        rule="libraries that read the environment, when imported or later, find that of their run or task",
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
    Case(name="requeue", rule="requeue requests and statistics reach the operator"),
    Case(
        name="remarks_on_settings",
        rule="each run has Ansible's warnings about ansible.cfg once",
        environment={"ANSIBLE_CONFIG": "{project}/ansible.cfg"},
        says=("PARAMIKO_HOST_KEY_AUTO_ADD option" if CORE < (2, 19) else "DEFAULT_JINJA2_NATIVE option",),
    ),
    Case(
        name="operator_sdk_names",
        rule="long and short names of operator_sdk.util run rolecall's modules if it isn't installed",
        status="failed",
        says=("found 'soon'", "missing required arguments: name"),
    ),
    Case(
        name="installed_names",
        rule="an installed operator_sdk.util is used instead of rolecall's",
        environment={"ANSIBLE_COLLECTIONS_PATH": "{project}/collections"},
        says=("this one was installed",),
    ),
    Case(
        name="too_slow", rule="a run over its timeout is stopped and reports this", status="timeout", timeout_seconds=60
    ),
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
