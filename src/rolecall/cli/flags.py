"""All flags of the operator, in the order of the help.

A flag has a name, a value type with its error message, a help text, and the setting that it sets. Its default is the
default of that setting, so each default is declared once, and the two names of the program can have different defaults.
The names of the log flags start with ``zap``, the Go runner's logging library, because existing manifests use them.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.kube.quantities import format_bytes, format_duration, parse_bytes, parse_non_negative_duration
from rolecall.runner.config.settings import LogEvents, Settings
from rolecall.system.logs import ENCODERS, LEVELS, TIME_ENCODINGS, LogSettings

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}

LOG_EVENTS = tuple(each.value for each in LogEvents if each is not LogEvents.OUTPUT)
"""The choices of ``--ansible-log-events``; a verbosity turns TASKS into OUTPUT."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: its name in the usage, how it is parsed from the command line and shown as a default.

    ``parse`` raises ``argparse.ArgumentTypeError`` with what was expected and what was found.
    """

    metavar: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_boolean: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag ``--name`` that sets ``setting``; a deprecated flag names its replacement in ``replaced_by``.

    ``default_text`` describes the default of ``rolecall run`` if its value does not, or if it depends on the machine.
    """

    name: str
    setting: str
    type: ValueType
    help: str
    replaced_by: str = ""
    default_text: str = ""

    @property
    def dest(self) -> str:
        """The attribute of the parsed options that has the value."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class FlagGroup:
    """Flags that belong together, and the dataclass whose fields they set."""

    title: str
    flags: tuple[Flag, ...]
    settings_type: type = Settings


def _as_argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make argparse show the text of a ``ValueError``, which it otherwise replaces with its own."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def parse_boolean(text: str) -> bool:
    """Return the boolean for one of Go's spellings. Raise ValueError."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {text!r}")
    return _BOOLEANS[text]


def _integer(text: str) -> int:
    if not is_number(text[1:] if text.startswith(("+", "-")) else text):
        raise ValueError(f"expected an integer, found {text!r}")
    return int(text)


def is_number(text: str) -> bool:
    """Return whether a text has only ASCII digits; ``isdecimal`` and ``int`` also accept those of other scripts."""
    return text.isascii() and text.isdecimal()


def _positive(text: str) -> int:
    if not is_number(text) or int(text) < 1:
        raise ValueError(f"expected an integer above 0, found {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not is_number(text):
        raise ValueError(f"expected an integer, at least 0, found {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not is_number(text) or int(text) > 65535:  # noqa: PLR2004 - the last port
        raise ValueError(f"expected a port from 0 to 65535, found {text!r}")
    return int(text)


def _quoted(text: str) -> str:
    """Return the text without a pair of single quotes around it; manifests often have them."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def choice(*choices: str) -> ValueType:
    """Return the type of a value that is one of several words, in upper or lower case."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, found {text!r}")
        return text.lower()

    return ValueType("WORD", _as_argument_type(parse), choices=choices)


BOOLEAN = ValueType(
    "[=BOOL]", _as_argument_type(parse_boolean), lambda value: "true" if value else "false", is_boolean=True
)
TEXT = ValueType("TEXT", str)
WORDS = ValueType("WORDS", _quoted)
SEARCH_PATH = ValueType("PATH", str)
FILE = ValueType("FILE", Path)
FILE_NAME = ValueType("FILE", str)
DIRECTORY = ValueType("DIR", Path)
ADDRESS = ValueType("ADDRESS", str)
INTEGER = ValueType("N", _as_argument_type(_integer))
POSITIVE = ValueType("N", _as_argument_type(_positive))
SIZE = ValueType("SIZE", _as_argument_type(parse_bytes), format_bytes)
COUNT = ValueType("N", _as_argument_type(_count))
PORT = ValueType("PORT", _as_argument_type(_port))
DURATION = ValueType("DURATION", _as_argument_type(parse_non_negative_duration), format_duration)


ANSIBLE = FlagGroup(
    "Ansible",
    (
        Flag("ansible-verbosity", "verbosity", INTEGER, "the number of -v options for Ansible"),
        Flag("ansible-args", "ansible_args", WORDS, "additional arguments for ansible-playbook"),
        Flag("ansible-roles-path", "roles_path", SEARCH_PATH, "sets ANSIBLE_ROLES_PATH"),
        Flag("ansible-collections-path", "collections_path", SEARCH_PATH, "sets ANSIBLE_COLLECTIONS_PATH"),
        Flag(
            "mark-unsafe",
            "mark_unsafe",
            BOOLEAN,
            "mark strings from objects as data that Ansible never evaluates; markUnsafe of a watch takes precedence",
        ),
        Flag(
            "drop-unknown-options",
            "drops_unknown_options",
            BOOLEAN,
            "leave out nested fields of a spec that the argument specs of its role do not declare, and report them; "
            "false lets the run fail",
        ),
        Flag(
            "unreachable-ok",
            "unreachable_ok",
            BOOLEAN,
            "do not treat an unreachable host, or a play without hosts, as a failure",
        ),
        Flag(
            "warm",
            "warm",
            BOOLEAN,
            "fork runs from a process that has imported Ansible; false starts a new process for each run",
        ),
        Flag(
            "warm-idle",
            "warm_idle_seconds",
            DURATION,
            "end that process after this time without a run, which frees its memory; the next run waits until it has "
            "started again; 0s means never",
        ),
        Flag(
            "ansible-log-events",
            "log_events",
            ValueType("WORD", str.lower, choices=LOG_EVENTS),
            "which events of a run are logged: the starts of tasks and their failures, or their results instead of "
            "their starts; the recap is always logged",
            default_text="results with lines for people, else tasks",
        ),
    ),
)


ELECTION = FlagGroup(
    "leader election",
    (
        Flag("leader-elect", "leader_elect", BOOLEAN, "reconcile only while holding a Lease"),
        Flag("enable-leader-election", "leader_elect", BOOLEAN, "old name of --leader-elect", "leader-elect"),
        Flag("leader-election-id", "leader_election_id", TEXT, "the name of the Lease"),
        Flag(
            "leader-election-namespace",
            "leader_election_namespace",
            TEXT,
            "the namespace of the Lease",
            default_text="the pod's namespace",
        ),
        Flag(
            "shards",
            "shards",
            POSITIVE,
            "divide the objects into N shards, each with one owner replica",
            default_text="one replica reconciles all",
        ),
        Flag(
            "leader-elect-resource-lock",
            "leader_elect_resource_lock",
            TEXT,
            "deprecated, no effect: the lock is always a Lease",
            "nothing",
        ),
        Flag(
            "leader-elect-lease-duration",
            "lease_duration_seconds",
            DURATION,
            "how long a Lease stays valid without being renewed",
        ),
        Flag(
            "leader-elect-renew-deadline",
            "renew_deadline_seconds",
            DURATION,
            "how long a leader retries to renew its Lease before it stops",
        ),
    ),
)


def _level(text: str) -> str:
    """Return the name of a level. A number above 0 means a more verbose level than info; the only one is debug."""
    if is_number(text) and int(text) > 0:
        return "debug"
    if text.lower() not in LEVELS:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(LEVELS)} or an integer above 0, found {text!r}")
    return text.lower()


LOGS = FlagGroup(
    "logs",
    (
        Flag(
            "zap-devel",
            "development",
            BOOLEAN,
            "use the console encoder, level debug, and stack traces from level warning",
        ),
        Flag(
            "zap-encoder",
            "encoder",
            choice(*ENCODERS),
            "the log format; text are lines for people; auto means text on a terminal and json otherwise",
        ),
        Flag(
            "zap-log-level",
            "level",
            ValueType("LEVEL", _level, choices=(*LEVELS, "NUMBER")),
            "the lowest logged level; a number means debug",
        ),
        Flag(
            "zap-stacktrace-level",
            "stacktrace_level",
            choice(*LEVELS),
            "the lowest level at which exceptions are logged with a stack trace",
        ),
        Flag("zap-time-encoding", "time_encoding", choice(*TIME_ENCODINGS), "the format of times in the log"),
    ),
    settings_type=LogSettings,
)


METRICS = FlagGroup(
    "metrics and probes",
    (
        Flag(
            "metrics-bind-address",
            "metrics_bind_address",
            ADDRESS,
            "the address that serves metrics, for example :8443; 0 disables it",
        ),
        Flag(
            "metrics-addr",
            "metrics_bind_address",
            ADDRESS,
            "old name of --metrics-bind-address",
            "metrics-bind-address",
        ),
        Flag("metrics-secure", "metrics_secure", BOOLEAN, "serve metrics over HTTPS"),
        Flag(
            "metrics-require-rbac",
            "metrics_require_rbac",
            BOOLEAN,
            "authenticate and authorize clients that read metrics; needs --metrics-secure",
        ),
        Flag(
            "user-metrics-port",
            "user_metrics_port",
            PORT,
            "the loopback port to which roles send metrics of their own; 0 chooses a free port",
        ),
        Flag(
            "enable-http2", "enable_http2", BOOLEAN, "no effect, accepted for existing manifests: servers use HTTP/1.1"
        ),
        Flag(
            "ui-bind-address",
            "ui_bind_address",
            ADDRESS,
            "the address that serves the dashboard, for example 127.0.0.1:8090; 0 disables it; a non-loopback "
            "address requires --metrics-secure and --metrics-require-rbac, which also apply to the dashboard",
        ),
        Flag(
            "health-probe-bind-address",
            "health_probe_bind_address",
            ADDRESS,
            "the address that serves health probes, for example :6789; 0 disables it",
        ),
    ),
)


OPERATOR = FlagGroup(
    "operator",
    (
        Flag("watches-file", "watches_file", FILE, "the file that lists what to watch"),
        Flag(
            "kubeconfig",
            "kubeconfig",
            FILE_NAME,
            "the kubeconfig file of the cluster",
            default_text="$KUBECONFIG, the pod's service account, ~/.kube/config",
        ),
        Flag(
            "max-concurrent-reconciles",
            "workers",
            POSITIVE,
            "the maximum number of concurrent runs for each kind",
            default_text="the number of CPUs, up to 4",
        ),
        Flag(
            "max-concurrent-runs",
            "max_concurrent_runs",
            POSITIVE,
            "the maximum number of concurrent runs for all kinds together",
            default_text="twice the number of CPUs, or the limit of a single kind if that is higher",
        ),
        Flag(
            "reconcile-period",
            "reconcile_period_seconds",
            DURATION,
            "how often unchanged objects are reconciled; 0s means never; reconcilePeriod of a watch takes precedence",
        ),
        Flag(
            "run-timeout",
            "run_timeout_seconds",
            DURATION,
            "stop a run that takes longer than this, and report a failure; 0s means no limit; timeout of a watch takes "
            "precedence",
        ),
        Flag(
            "ready-conditions",
            "ready_conditions",
            BOOLEAN,
            "write the conditions Ready, Reconciling and Stalled; readyConditions and ready of a watch take precedence",
        ),
        Flag(
            "max-object-values",
            "max_object_values",
            COUNT,
            "how many values (strings, numbers, lists, mappings) an object may have; its role does not run if it has "
            "more; 0 means no limit",
        ),
        Flag(
            "max-artifacts-size",
            "max_artifacts_bytes",
            SIZE,
            "how much disk space the artifacts of all runs may take together, for example 1Gi; the oldest are removed "
            "first, those of failures last; a single run may have an eighth; 0 means no limit",
        ),
        Flag(
            "run-memory-limit",
            "run_memory_limit_bytes",
            SIZE,
            "how much memory each process of a run may have, for example 512Mi; 0 means no limit",
            default_text="half of the container's memory, at least 256Mi; no limit if the container has none",
        ),
        Flag(
            "backoff-min",
            "backoff_min_seconds",
            DURATION,
            "the delay after the first failure; it doubles with each further failure",
        ),
        Flag("backoff-max", "backoff_max_seconds", DURATION, "the maximum delay after failures"),
        Flag("graceful-shutdown-timeout", "grace_seconds", DURATION, "how long the operator may take to stop"),
        Flag("proxy-port", "proxy_port", PORT, "the loopback port that runs connect to; 0 chooses a free port"),
        Flag(
            "inject-owner-ref", "inject_owner_reference", BOOLEAN, "add an owner reference to objects that runs create"
        ),
        Flag(
            "work-dir",
            "work_directory",
            DIRECTORY,
            "the directory for the inputs and results of runs; kept if you set it",
            default_text="a private directory, removed when the operator stops",
        ),
        Flag(
            "record-memory",
            "record_memory_bytes",
            SIZE,
            "how much memory the records of the dashboard may take, the last ones of each object; 0 keeps none",
        ),
        Flag("record-dir", "record_directory", DIRECTORY, "write a record of each run into this directory"),
        Flag(
            "record-dir-max-size",
            "record_directory_max_bytes",
            SIZE,
            "how much space records may take in that directory; the oldest are removed, failures last",
        ),
        Flag(
            "trace-unchanged",
            "trace_unchanged",
            BOOLEAN,
            "send traces of successful reconciles that changed nothing too, if OTEL_EXPORTER_OTLP_ENDPOINT is set",
        ),
    ),
)


GROUPS: tuple[FlagGroup, ...] = (OPERATOR, ANSIBLE, LOGS, METRICS, ELECTION)


def all_flags() -> Iterator[Flag]:
    """Yield every flag."""
    for group in GROUPS:
        yield from group.flags
