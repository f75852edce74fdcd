"""Flags of how Ansible runs, and what is logged of it."""

from rolecall.cli.flags.flag import Flag, FlagGroup, ValueType
from rolecall.cli.flags.values import BOOLEAN, INTEGER, SEARCH_PATH, WORDS
from rolecall.config.settings import LOG_EVENTS

ANSIBLE = FlagGroup(
    "Ansible",
    (
        Flag("ansible-verbosity", "verbosity", INTEGER, "how many -v Ansible gets"),
        Flag("ansible-args", "ansible_args", WORDS, "further words for ansible-playbook"),
        Flag("ansible-roles-path", "roles_path", SEARCH_PATH, "sets ANSIBLE_ROLES_PATH"),
        Flag("ansible-collections-path", "collections_path", SEARCH_PATH, "sets ANSIBLE_COLLECTIONS_PATH"),
        Flag(
            "mark-unsafe",
            "mark_unsafe",
            BOOLEAN,
            "take texts of objects as data that Ansible never evaluates; a watch's markUnsafe wins",
        ),
        Flag(
            "unreachable-ok",
            "unreachable_ok",
            BOOLEAN,
            "a host that cannot be reached, or a play without hosts, is no failure",
        ),
        Flag("warm", "warm", BOOLEAN, "fork runs from a process that has imported Ansible; false starts each anew"),
        Flag(
            "ansible-log-events",
            "log_events",
            ValueType("WORD", str.lower, choices=LOG_EVENTS),
            "what is logged of a run; its recap always is",
        ),
    ),
)
