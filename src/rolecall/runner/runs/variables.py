"""The extra vars of a run: what a role receives from its object. Nothing is read, written, or changed in place.

Names, merge order, and corner cases are the Go runner's, so that roles written for it see the same variables. Keys of
the spec are converted to Ansible's naming style (``serviceAccount`` becomes ``service_account``), with the Go runner's
odd results. One thing differs: Go isolates its special words in a random order, here it is fixed (HTTP, URL, IP).

A spec can't set reserved variables, which change the behavior of Ansible or its plugins. Every field of a spec becomes
an extra var, and Ansible takes its interpreter, its shell, its temporary directory, and its connection from variables
too, and starts programs by them: an object's author could run code with the credentials of the run.
``markUnsafe`` doesn't help, since these values need no template. A watch can allow single variables by name.

Argument specs reject a nested field that the role doesn't declare. The spec of an object has one if it was written for
another version of the role, so a rollback, or a CRD that comes before its role, would break every object that a default
of the CRD has given the field. ``declared_part`` leaves such fields out, as an API server drops unknown fields.

Ansible reads from ``variables_file`` the JSON values of the object, or fails: nothing in an object changes how the file
is parsed. The mark of a string, ``{"__ansible_unsafe": …}``, is part of the file, so an object could forge it, or make
ansible-core's JSON decoder fail, after which ansible-core parses the file as YAML, where marks have no meaning and each
string is a template. Therefore, the file isn't YAML, keys that the decoder acts on are rejected, and so are keys that
ansible-core before 2.19 evaluates, because a key can't be marked. ``check_nesting`` keeps the decoder from failing.
"""

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.json_values import all_values, items_of, with_texts
from rolecall.kube.metadata import spec_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.ansible_config import release_numbers
from rolecall.runner.config.watches import Watch

_META = "ansible_operator_meta"
MAX_LEVELS: Final = 100
"""The maximum nesting of an object; from about 250 levels on, ansible-core can't decode it."""

_DECODED: Final = "__ansible_"
"""The prefix of keys that ansible-core's JSON decoder acts on: ``__ansible_unsafe``, ``_vault``, ``_type``."""
_EVALUATES_KEYS: Final = release_numbers(version("ansible-core"))[:2] < (2, 19)
_TEMPLATE_STARTS: Final = ("{{", "{%", "{#")

_RESERVED = re.compile(
    r"_*ansible_\w*"  # Ansible's variables, and fields such as ansibleConfigX in snake case
    r"|inventory_hostname\w*|group_names|omit"  # magic variables
    r"|become(?:_user)?|\w+_become_method"
    # Options of connection, lookup and vars plugins: addresses, credentials and files that a run would use. Names that
    # a kind may have for its own fields, such as azure_resource_group, are reserved only if a plugin takes them.
    r"|(?:conjur|http_login|passwordstore|sops)(?:_\w+)?"
    r"|azure_client_id|lmdb_kv_db|proxmox_vmid|wsl_(?:distribution|user)",
    re.ASCII,
)
_TWO_DIGIT_GROUPS = re.compile(r"([A-Za-z])([0-9]+)([A-Za-z][0-9]+)")
_SPECIAL_WORDS = ("HTTP", "URL", "IP")
_SPECIAL_NAMES = frozenset(word.lower() for word in _SPECIAL_WORDS)
_SEPARATORS = " _-"


def extra_vars(
    obj: RawObject,
    watch: Watch,
    *,
    finalizing: bool = False,
    mark_unsafe: bool = False,
    part: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the extra vars of a run; later ones win: spec, meta, object, raw spec, watch vars, finalizer vars.

    ``mark_unsafe`` applies to a watch without ``markUnsafe``. ``part`` is what becomes variables, None for the whole
    spec. Raises ValueError if a field of the spec would set a variable reserved for Ansible, or if Ansible would act on
    a key of the object.
    """
    key, mark_unsafe = ObjectKey.of_object(obj), watch.marks_unsafe(default=mark_unsafe)
    spec = spec_of(obj)
    part = spec if part is None else part
    parameters = snake_case_keys(part) if watch.snake_case_parameters else part
    declared = watch.declared_for(finalizing=finalizing)
    if declared is not None:
        parameters = {name: value for name, value in parameters.items() if name in declared}
    # The operator's own variable replaces a field of that name, so the field does no harm.
    if rejected := sorted(name for name in parameters.keys() - {_META} - watch.allow_variables if is_reserved(name)):
        raise ValueError(
            f"the spec sets {', '.join(rejected)}, which Ansible itself acts on: remove the field, or list the "
            "variable under allowVariables in watches.yaml"
        )
    # In the converted keys too: "__ansibleVault" becomes "__ansible_vault".
    _check_keys([obj, parameters], mark_unsafe=mark_unsafe)
    if mark_unsafe:
        obj, spec, parameters = _unsafe(obj), _unsafe(spec), _unsafe(parameters)
    # Names of some kinds, such as ClusterRole, may contain braces.
    meta = {"name": key.name, "namespace": key.namespace}
    name = object_variable(watch.gvk)
    return {
        **parameters,
        _META: _unsafe(meta) if mark_unsafe else meta,
        name: obj,
        f"{name}_spec": spec,
        **watch.variables,
        **(watch.finalizer.variables if finalizing and watch.finalizer else {}),
    }


def declared_part(
    spec: Mapping[str, Any], options: Mapping[str, Any], *, snake_case_names: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a spec without the nested fields that would fail validation as unknown, and the paths of these fields.

    ``options`` are those of the role's argument specs, in which fields have snake case names if ``snake_case_names``.
    All top-level fields stay, because Ansible validates only declared variables. So does everything in a
    field whose option declares no options of its own. Paths are the spec's, for example ``quota.storage``, and
    ``rules[].port`` in lists; each occurs once, sorted.
    """
    left_out: dict[str, None] = {}

    def declared(value: Any, option: object, path: str) -> Any:
        nested = _nested_options(option)
        if nested is None:
            return value
        if isinstance(value, list):
            return [declared(item, option, f"{path}[]") if isinstance(item, dict) else item for item in value]
        if not isinstance(value, dict):
            return value
        kept = {}
        for key, item in value.items():
            name = snake_case(key) if snake_case_names else key
            if name in nested:
                kept[key] = declared(item, nested[name], f"{path}.{key}")
            else:
                left_out[f"{path}.{key}"] = None
        return kept

    part = {
        key: declared(value, options.get(snake_case(key) if snake_case_names else key), key)
        for key, value in spec.items()
    }
    return part, tuple(sorted(left_out))


def _nested_options(option: object) -> dict[str, Any] | None:
    """Return the options, by name and alias, that Ansible accepts in the value of an option; None for any.

    As in ansible-core's ``_validate_sub_spec``: options count for the types ``dict`` and ``list`` of ``dict``.
    """
    if not isinstance(option, dict) or not isinstance(nested := option.get("options"), dict):
        return None
    kind = option.get("type")
    if kind != "dict" and not (kind == "list" and option.get("elements") == "dict"):
        return None
    found = {str(name): each for name, each in nested.items()}
    for each in nested.values():
        aliases = each.get("aliases") if isinstance(each, dict) else None
        found |= {str(alias): each for alias in aliases} if isinstance(aliases, list) else {}
    return found


def variables_file(variables: Mapping[str, Any]) -> str:
    """Return the text of the file of extra vars: JSON, which no YAML parser accepts because it starts with a tab.

    Keys are sorted at every depth, as Go writes them: a role that loops over a mapping sees its keys in that order.
    """
    return "\t" + json.dumps(dict(variables), sort_keys=True)


def check_nesting(obj: RawObject) -> None:
    """Raise ValueError if an object has more than ``MAX_LEVELS`` levels, except in ``managedFields``."""
    level: list[Any] = [{**obj, "metadata": {**obj.get("metadata", {}), "managedFields": None}}]
    for _ in range(MAX_LEVELS):
        level = [item for each in level for item in items_of(each) if isinstance(item, dict | list)]
    if level:
        raise ValueError(
            f"the object is nested in more than {MAX_LEVELS} levels, which Ansible can't decode: make the object "
            "flatter, or pass the inner part as a string of JSON"
        )


def _check_keys(value: Any, *, mark_unsafe: bool) -> None:
    """Raise ValueError for a key, at any depth, that would not be data to Ansible."""
    for each in all_values(value):
        for key in each if isinstance(each, dict) else ():
            if key.startswith(_DECODED):
                raise ValueError(f"the object has the key {key!r}, which Ansible itself acts on: rename the key")
            if mark_unsafe and _EVALUATES_KEYS and any(start in key for start in _TEMPLATE_STARTS):
                raise ValueError(
                    f"the object has the key {key!r}, which ansible-core before 2.19 would evaluate as a template, in "
                    "spite of markUnsafe: rename the key, or update ansible-core"
                )


def object_variable(gvk: GVK) -> str:
    """Return the name of the variable that holds the whole object, for example ``_cache_example_com_memcached``."""
    return f"_{gvk.group}_{gvk.kind.lower()}".replace(".", "_").replace("-", "_")


def _unsafe(value: Any) -> Any:
    """Mark every string, at any depth, as data that Ansible must not evaluate as a template."""
    return with_texts(value, lambda text: {"__ansible_unsafe": text})


def is_reserved(name: str) -> bool:
    """Return whether a variable changes the behavior of Ansible, and not only the input of a role."""
    return _RESERVED.fullmatch(name) is not None


def snake_case(key: str) -> str:
    """Return a key in snake case; a leading capital becomes a leading underscore. A blank key stays as it is."""
    text = _TWO_DIGIT_GROUPS.sub(r"\1 \2 \3", key).strip(" ")
    if not text:
        return key
    leads_with_capital = "A" <= text[0] <= "Z"
    for word in _SPECIAL_WORDS:
        text = _isolate(text, word)
    words = _words(text)
    prefix = "_" if leads_with_capital and words[0] not in _SPECIAL_NAMES else ""
    return prefix + "_".join(words)


def snake_case_keys(value: Any) -> Any:
    """Return a copy of a JSON value in which every key, at any depth, is in snake case.

    If several keys become the same name, the last one in alphabetical order wins.
    """
    if isinstance(value, dict):
        return {snake_case(key): snake_case_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [snake_case_keys(item) for item in value]
    return value


def _isolate(text: str, word: str) -> str:
    """Put underscores around the first occurrence of a special word; a plural s counts as a part of it."""
    before, found, after = text.partition(word)
    if not found:
        return text
    if after.startswith("s"):
        word, after = f"{word}S", after[1:]
    left = "_" if before or not after else ""
    right = "_" if after else ""
    return f"{before}{left}{word}{right}{after}"


def _words(text: str) -> list[str]:
    """Split at separators and where the case changes; the last capital of an acronym starts the next word."""
    words = []
    word = ""
    for character, following in zip(text, f"{text[1:]} ", strict=True):
        pair = character + following
        if word and pair.isascii() and pair.isalpha() and character.isupper() != following.isupper():
            words.append(word if character.isupper() else word + character)
            word = character if character.isupper() else ""
        elif character in _SEPARATORS:
            words.append(word)
            word = ""
        else:
            word += character
    return [part.lower() for part in [*words, word]]
