"""The keys of ``watches.yaml``, each declared once: name, type, default, and help text.

``watches`` reads the file by these declarations only: other keys are unknown, and the reference in
``docs/reference/watches.md`` and the JSON schema contain exactly these. To add a key, declare it here, add it to the
tuple of its mapping, and add a ``reader.read`` to ``watches``. Help texts are Markdown without links.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rolecall.kube.quantities import parse_non_negative_duration

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Quoted spellings are strings; the Go runner's parser accepts them as booleans.
BOOLEANS = {"y": True, "yes": True, "true": True, "on": True, "n": False, "no": False, "false": False, "off": False}
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Type(Generic[T_co]):
    """A type of values: its name in the documentation, and the conversion from a YAML value.

    Scalars are converted as the Go runner's parser converts them, so a file means the same for both. ``read`` raises
    ValueError with the expected and the found value.
    """

    name: str
    read: Callable[[object], T_co]


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """A key of a mapping; ``default`` is its value if it is absent, null or invalid. A key equals only itself.

    ``default_text`` describes the default if its value does not. ``is_ours`` marks a key that the Go runner ignores.
    If the value is a mapping or a list of mappings, ``keys`` are the keys of these mappings.
    """

    name: str
    type: Type[T]
    help: str
    default: T
    default_text: str = ""
    is_required: bool = False
    is_ours: bool = False
    keys: "tuple[Key[Any], ...]" = ()


def describe_value(value: object) -> str:
    """Return a description of an unexpected value."""
    kinds: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    kind = next((text for kind, text in kinds.items() if isinstance(value, kind)), "")
    return kind or f"{type(value).__name__} {value!r}"


def _expected(what: str, value: object) -> ValueError:
    return ValueError(f"expected {what}, found {describe_value(value)}")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _expected("a string", value)


def _boolean(value: object) -> bool:
    found = BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise _expected("true or false", found)
    return found


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected("an integer", value)
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise _expected("a duration with a unit such as 15s or 1m30s", value)
    return parse_non_negative_duration(value)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _expected("a mapping", value)
    return {str(name): item for name, item in value.items()}


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _expected("a list", value)
    return value


TEXT = Type("string", _text)
BOOLEAN = Type("boolean", _boolean)
INTEGER = Type("integer", _integer)
DURATION = Type("duration", _seconds)
"""In seconds."""
PATH = Type("JSONPath", _text)
"""Not parsed yet."""
MAPPING = Type("mapping", _mapping)
"""Its keys keep their spelling."""
PATH_OR_MAPPING: Type[Any] = Type("JSONPath or mapping", lambda value: value)
LIST = Type("list", _list)


def list_key(name: str, text: str, **further: Any) -> Key[Sequence[Any]]:
    """Return a key for a list, by default an empty one; ``text`` is its help, ``further`` are fields of ``Key``."""
    return Key(name, LIST, text, default=(), **further)


# Keys of several mappings.
GROUP = Key("group", TEXT, "the API group; empty for the core group", default="", default_text="empty")
VERSION = Key("version", TEXT, "the API version", default="", is_required=True)
KIND = Key("kind", TEXT, "the kind", default="", is_required=True)
ROLE = Key("role", TEXT, "the role to run: a name, a path, or `namespace.collection.role`", default="")
PLAYBOOK = Key("playbook", TEXT, "the playbook to run; it takes precedence over `role`", default="")
VARS = Key("vars", MAPPING, "extra variables; they take precedence over those from the spec", default=_NOTHING)

# Keys of `selector`.
MATCH_LABELS = Key("matchLabels", MAPPING, "labels that the object must have, with their values", default=_NOTHING)
EXPRESSION_KEY = Key("key", TEXT, "the label", default="", is_required=True)
EXPRESSION_OPERATOR = Key("operator", TEXT, "`In`, `NotIn`, `Exists` or `DoesNotExist`", default="", is_required=True)
VALUES = list_key("values", "the values for `In` and `NotIn`, at least one; must be empty for the other operators")
MATCH_EXPRESSIONS = list_key(
    "matchExpressions",
    "further conditions on labels; all of them must be true",
    keys=(EXPRESSION_KEY, EXPRESSION_OPERATOR, VALUES),
)

# Keys of `finalizer`.
FINALIZER_NAME = Key(
    "name", TEXT, "the entry in `metadata.finalizers`, for example `example.com/website`", default="", is_required=True
)

# Keys of an entry of `triggers`.
LABELS = Key("labels", PATH, "a JSONPath into the primary; the other object has all labels found there", default="")
NAME = Key(
    "name", PATH, "a JSONPath into the primary; the other object's name is one of the values found there", default=""
)
OWNER: Key[bool | None] = Key(
    "owner", BOOLEAN, "`true`: an owner reference of the other object names the primary", default=None
)
FIELDS = list_key(
    "fields",
    "JSONPaths into the other object; an update triggers a reconcile only if one of these values changed",
    default_text="every update",
)

# Keys of `ready`.
READY_VALUE = Key("value", PATH, "whether the object is ready", default="", is_required=True)
REASON = Key("reason", PATH, "the reason of `Ready`", default="", default_text="`RunSucceeded` or `NotReadyYet`")
MESSAGE = Key("message", PATH, "the message of `Ready`", default="", default_text="that of the operator")

# Keys of the entry of a kind.
RECONCILE_PERIOD: Key[float | None] = Key(
    "reconcilePeriod",
    DURATION,
    "how long after a success an object is reconciled again; `0s` means the flag decides",
    default=None,
    default_text="`--reconcile-period`",
)
TIMEOUT: Key[float | None] = Key(
    "timeout",
    DURATION,
    "a run that takes longer is stopped and counts as failed",
    default=None,
    default_text="`--run-timeout`",
    is_ours=True,
)
MANAGE_STATUS = Key("manageStatus", BOOLEAN, "whether the operator writes the status", default=True)
READY_CONDITIONS: Key[bool | None] = Key(
    "readyConditions",
    BOOLEAN,
    "whether the status has the conditions `Ready`, `Reconciling` and `Stalled`",
    default=None,
    default_text="`true` with `ready`, else `--ready-conditions`",
    is_ours=True,
)
READY = Key(
    "ready",
    PATH_OR_MAPPING,
    "a JSONPath into the result of a run, such as `$.stats.is_ready`; `Ready` is False until this value is true",
    default="",
    is_ours=True,
    keys=(READY_VALUE, REASON, MESSAGE),
)
STALLED_AFTER: Key[float | None] = Key(
    "stalledAfter",
    DURATION,
    "for how long runs of an object must fail until it is `Stalled`; `0s`: from the first failure on",
    default=None,
    default_text="`30s`",
    is_ours=True,
)
SNAKE_CASE_PARAMETERS = Key(
    "snakeCaseParameters",
    BOOLEAN,
    "whether keys of the spec are converted to snake case: `minReplicas` becomes the variable `min_replicas`",
    default=True,
)
MARK_UNSAFE: Key[bool | None] = Key(
    "markUnsafe",
    BOOLEAN,
    "whether strings from the object are marked as data that Ansible never evaluates",
    default=None,
    default_text="`--mark-unsafe`",
)
ALLOW_VARIABLES = list_key(
    "allowVariables",
    "variables reserved for Ansible that a spec may set, for example `ansible_user`; a spec that sets another fails",
    is_ours=True,
)
VARIABLES = Key(
    "variables",
    TEXT,
    "which fields of a spec become variables: `all`, or only those that are `declared` in the role's argument specs",
    default="all",
    is_ours=True,
)
SELECTOR: Key[Mapping[str, Any] | None] = Key(
    "selector",
    MAPPING,
    "only objects with matching labels are reconciled",
    default=None,
    default_text="all",
    keys=(MATCH_LABELS, MATCH_EXPRESSIONS),
)
WATCH_ANNOTATIONS_CHANGES = Key(
    "watchAnnotationsChanges",
    BOOLEAN,
    "whether a change of the object's annotations triggers a reconcile",
    default=False,
)
WATCH_DEPENDENT_RESOURCES = Key(
    "watchDependentResources", BOOLEAN, "whether changes of dependents trigger a reconcile", default=True
)
WATCH_CLUSTER_SCOPED_RESOURCES = Key(
    "watchClusterScopedResources",
    BOOLEAN,
    "whether changes of cluster-scoped dependents trigger a reconcile",
    default=False,
)
WATCH_READS = Key(
    "watchReads",
    BOOLEAN,
    "whether a change of what the last run has read triggers a reconcile",
    default=False,
    is_ours=True,
)
BLACKLIST = list_key(
    "blacklist", "kinds whose changes are ignored, as dependents and as reads", keys=(GROUP, VERSION, KIND)
)
MAX_RUNNER_ARTIFACTS = Key(
    "maxRunnerArtifacts",
    INTEGER,
    "how many runs of an object are kept in its workspace; 0 means the default, a negative number keeps all",
    default=20,
)
FINALIZER: Key[Mapping[str, Any] | None] = Key(
    "finalizer",
    MAPPING,
    "what runs before an object is deleted",
    default=None,
    keys=(FINALIZER_NAME, ROLE, PLAYBOOK, VARS),
)
TRIGGERS = list_key(
    "triggers",
    "other objects whose changes trigger a reconcile",
    is_ours=True,
    keys=(GROUP, VERSION, KIND, LABELS, NAME, OWNER, FIELDS),
)
SENSITIVE = list_key(
    "sensitive",
    "JSONPaths into the object, such as `$.spec.password`; their values are masked in records and on the dashboard",
    is_ours=True,
)
STATUS = Key(
    "status",
    MAPPING,
    "fields of the status, each with a JSONPath into the result of a run",
    default=_NOTHING,
    is_ours=True,
)

ENTRY: tuple[Key[Any], ...] = (
    *(GROUP, VERSION, KIND, ROLE, PLAYBOOK, VARS, RECONCILE_PERIOD, TIMEOUT, MANAGE_STATUS, READY_CONDITIONS, READY),
    *(STALLED_AFTER, SNAKE_CASE_PARAMETERS, MARK_UNSAFE, ALLOW_VARIABLES, VARIABLES, SELECTOR),
    *(WATCH_ANNOTATIONS_CHANGES, WATCH_DEPENDENT_RESOURCES, WATCH_CLUSTER_SCOPED_RESOURCES, WATCH_READS, BLACKLIST),
    *(MAX_RUNNER_ARTIFACTS, FINALIZER, TRIGGERS, SENSITIVE, STATUS),
)
"""The keys of an entry, in the order of the reference."""
