"""The keys of ``watches.yaml``: which there are, what they mean, and what holds without them.

``watches`` reads the file by these declarations and by nothing else: a key that is not here is unknown to it, and
``docs/reference/watches.md`` shows exactly these. A new key is a declaration here, in the tuple of its mapping, and a
``fields.read`` there. Meanings are Markdown without links.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.config.key_types import BOOLEAN, DURATION, INTEGER, LIST, MAPPING, PATH, TEXT, Key

_NOTHING: Mapping[str, Any] = {}
_NO_ITEMS: Sequence[Any] = ()

# What several mappings have.
GROUP = Key("group", TEXT, "the API group; empty for the core group", default="", default_text="empty")
VERSION = Key("version", TEXT, "the API version", default="", is_required=True)
KIND = Key("kind", TEXT, "the kind", default="", is_required=True)
ROLE = Key("role", TEXT, "the role to run: a name, a path, or `namespace.collection.role`", default="")
PLAYBOOK = Key("playbook", TEXT, "the playbook to run; it wins over `role`", default="")
VARS = Key("vars", MAPPING, "extra variables; they win over those from the spec", default=_NOTHING)

# Of `selector`.
MATCH_LABELS = Key("matchLabels", MAPPING, "labels that the object carries, with their values", default=_NOTHING)
EXPRESSION_KEY = Key("key", TEXT, "the label", default="", is_required=True)
EXPRESSION_OPERATOR = Key("operator", TEXT, "`In`, `NotIn`, `Exists` or `DoesNotExist`", default="", is_required=True)
VALUES = Key(
    "values", LIST, "what `In` and `NotIn` compare with; at least one, and none with the others", default=_NO_ITEMS
)
MATCH_EXPRESSIONS = Key(
    "matchExpressions",
    LIST,
    "further conditions on labels; all of them hold",
    default=_NO_ITEMS,
    keys=(EXPRESSION_KEY, EXPRESSION_OPERATOR, VALUES),
)

# Of `finalizer`.
FINALIZER_NAME = Key(
    "name",
    TEXT,
    "what is written to `metadata.finalizers`, for example `example.com/website`",
    default="",
    is_required=True,
)

# Of an entry of `triggers`.
LABELS = Key("labels", PATH, "the other object carries all the labels that this finds in the primary", default="")
NAME = Key(
    "name", PATH, "the other's name is what this finds in the primary; several matches are several names", default=""
)
OWNER: Key[bool | None] = Key(
    "owner", BOOLEAN, "`true`: one of the owner references of the other object names the primary", default=None
)
ON = Key(
    "on",
    LIST,
    "JSONPaths into the other object: an update counts only if one of these values changed",
    default=_NO_ITEMS,
    default_text="every update",
)

# Of the entry of a kind.
RECONCILE_PERIOD: Key[float | None] = Key(
    "reconcilePeriod",
    DURATION,
    "how long after a success an object is reconciled anyway; `0s` means the flag decides",
    default=None,
    default_text="`--reconcile-period`",
)
TIMEOUT: Key[float | None] = Key(
    "timeout",
    DURATION,
    "a run that takes longer is ended and has failed",
    default=None,
    default_text="`--run-timeout`",
    is_ours=True,
)
MANAGE_STATUS = Key("manageStatus", BOOLEAN, "whether the operator writes the status", default=True)
SNAKE_CASE_PARAMETERS = Key(
    "snakeCaseParameters",
    BOOLEAN,
    "whether keys of the spec become snake case: `minReplicas` is the variable `min_replicas`",
    default=True,
)
MARK_UNSAFE: Key[bool | None] = Key(
    "markUnsafe",
    BOOLEAN,
    "whether texts of the object are data that Ansible never evaluates; say true",
    default=None,
    default_text="`--mark-unsafe`",
)
SELECTOR: Key[Mapping[str, Any] | None] = Key(
    "selector",
    MAPPING,
    "only objects with such labels are reconciled",
    default=None,
    default_text="all",
    keys=(MATCH_LABELS, MATCH_EXPRESSIONS),
)
WATCH_ANNOTATIONS_CHANGES = Key(
    "watchAnnotationsChanges", BOOLEAN, "whether a change of the object's annotations counts", default=False
)
WATCH_DEPENDENT_RESOURCES = Key(
    "watchDependentResources",
    BOOLEAN,
    "whether changes of dependents count",
    default=True,
)
WATCH_CLUSTER_SCOPED_RESOURCES = Key(
    "watchClusterScopedResources", BOOLEAN, "whether changes of cluster-scoped dependents count", default=False
)
BLACKLIST = Key(
    "blacklist",
    LIST,
    "kinds of dependents that do not count",
    default=_NO_ITEMS,
    keys=(GROUP, VERSION, KIND),
)
MAX_RUNNER_ARTIFACTS = Key(
    "maxRunnerArtifacts",
    INTEGER,
    "how many runs of an object are kept in its workspace; 0 means the default, below 0 keeps all",
    default=20,
)
FINALIZER: Key[Mapping[str, Any] | None] = Key(
    "finalizer",
    MAPPING,
    "what runs before an object may go",
    default=None,
    keys=(FINALIZER_NAME, ROLE, PLAYBOOK, VARS),
)
TRIGGERS = Key(
    "triggers",
    LIST,
    "other objects whose changes count",
    default=_NO_ITEMS,
    is_ours=True,
    keys=(GROUP, VERSION, KIND, LABELS, NAME, OWNER, ON),
)
STATUS = Key(
    "status",
    MAPPING,
    "fields of the status, each with a JSONPath into what a run gave",
    default=_NOTHING,
    is_ours=True,
)

ENTRY: tuple[Key[Any], ...] = (
    GROUP,
    VERSION,
    KIND,
    ROLE,
    PLAYBOOK,
    VARS,
    RECONCILE_PERIOD,
    TIMEOUT,
    MANAGE_STATUS,
    SNAKE_CASE_PARAMETERS,
    MARK_UNSAFE,
    SELECTOR,
    WATCH_ANNOTATIONS_CHANGES,
    WATCH_DEPENDENT_RESOURCES,
    WATCH_CLUSTER_SCOPED_RESOURCES,
    BLACKLIST,
    MAX_RUNNER_ARTIFACTS,
    FINALIZER,
    TRIGGERS,
    STATUS,
)
"""The keys of an entry, in the order of the reference."""
