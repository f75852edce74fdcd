"""Flags for how Ansible runs and what is logged of a run."""

from rolecall.cli.flag import Flag, FlagGroup, ValueType
from rolecall.cli.flag_values import BOOLEAN, INTEGER, SEARCH_PATH, WORDS
from rolecall.runner.config.settings import LOG_EVENTS

ANSIBLE = FlagGroup(
    "Ansible",
    (
        Flag("ansible-verbosity", "verbosity", INTEGER, "how many -v options Ansible gets"),
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
            "ansible-log-events",
            "log_events",
            ValueType("WORD", str.lower, choices=LOG_EVENTS),
            "which events of a run are logged; the recap is always logged",
        ),
    ),
)
