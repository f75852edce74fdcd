"""Changes the schema of a CRD so that it accepts only what the validation of the role's argument specs accepts.

The argument specs determine ``type``, ``required``, ``default``, ``choices``, ``elements``, nested ``options``, and
``description``. All else in the schema stays; so do a type, a default, an enum, or a description that the argument
specs lack. Fields that aren't arguments stay too, with a note.

Rules between options become CEL rules, see ``crd_rules``.
"""

import copy
import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.runner.runs.variables import is_reserved, snake_case, snake_case_keys
from rolecall.workbench.project.argument_specs import COMPARED, ArgumentSpecError
from rolecall.workbench.project.crd_rules import GENERATED, RULE_KEYS, InexpressibleError, RuleScope, rules_of

Schema = MutableMapping[str, Any]
Option = Mapping[str, Any]

_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object", "raw": None}
"""The schema type of each argument type that isn't written as a string; None for any value."""
_NARROWER = {"float": ("integer",), "json": ("object", "array"), "jsonarg": ("object", "array")}
"""Other schema types whose values an argument accepts: written by hand, they stay."""
_PATTERNS = {"bytes": r"^[0-9]+(\.[0-9]+)?([KMGTPEZY]?B|[KMGTPEZY])?$", "bits": r"^[0-9]+(\.[0-9]+)?[KMGTPEZY]?b?$"}
PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_ANY = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_RULES = "x-kubernetes-validations"
_ORDER = ("type", "enum", "pattern", "default", "description", "required", _ANY, _RULES, "properties", "items")
"""The order of new keys in a schema."""
_NEW_TO_EARLIER_ROLES = (
    "its default gives the field to every object, and earlier versions of the role don't declare it: for them, "
    "rolecall run leaves the field out, and runs of ansible-operator fail"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of a CRD, or a note about it: its place in the file, the kind, the path of the field, and the text.

    ``line`` counts from 1 and is None for something new. The path starts with ``spec``.
    """

    file: Path
    line: int | None
    kind: str
    path: str
    text: str


@dataclass(slots=True)
class SchemaSync:
    """Changes a schema in place, and collects the changes, and notes about what the schema doesn't guarantee.

    ``given`` are the variables that the spec can't set, ``allowed`` the reserved variables that it can. With
    ``snake_case``, fields become variables as in runs. ``file`` and ``kind`` are those of the CRD.
    """

    snake_case: bool = True
    given: Mapping[str, Any] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    file: Path = Path()
    kind: str = ""
    changes: list[Finding] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)
    """The fields that aren't arguments."""
    notes: list[Finding] = field(default_factory=list)

    def apply(self, root: Schema, entry: Option) -> None:
        """Change the schema of a kind; its property ``spec`` takes the options of the entry point of a role.

        Raise ArgumentSpecError if an option can't be a field.
        """
        properties = _child(root, "properties")
        is_new = "spec" not in properties
        spec = _child(properties, "spec")
        if is_new:
            self._change(spec, "spec", "new field")
        self._set_type(spec, "dict", "spec")
        options = {name: each for name, each in (entry.get("options") or {}).items() if self._is_settable(name)}
        self._set_fields(spec, {**entry, "options": options}, "spec", ())
        self._set_rules(spec, entry, "spec", (), self.given)
        if spec.get(_ANY):
            self._note(spec, "spec", f"{_ANY} is true, so that the API server doesn't reject unknown fields")
        if (spec.get("required") or spec.get(_RULES)) and "default" not in spec:
            self._require(root, "spec", "spec", is_required=True)

    def _is_settable(self, variable: str) -> bool:
        """Return whether a field of the spec can set a variable; those with an underscore are the object itself."""
        is_ours = variable.startswith("_") or (is_reserved(variable) and variable not in self.allowed)
        return not is_ours and variable not in self.given

    def _set_fields(self, schema: Schema, parent: Option, path: str, lists: tuple[Schema, ...]) -> None:
        """Take the fields of an object from the options of an entry point or of an option.

        ``lists`` are the schemas of the lists around the object.
        """
        options: Mapping[str, Option] = parent.get("options") or {}
        fields = self._fields_of(schema, path)
        for name in sorted(fields.keys() - options.keys() - self.given.keys()):
            reason = (
                f"the role has no argument {name!r}"
                if path == "spec"
                else f"the role has no option {name!r}: rolecall run leaves it out, and runs of ansible-operator fail"
            )
            self.unknown.append(self._finding(schema["properties"], f"{path}.{fields[name]}", reason))
        exclusive = {name for group in parent.get("mutually_exclusive") or [] for name in group}
        # For the rules around it, a value that Ansible creates from defaults isn't set; one of the API server is.
        together = {name for group in parent.get("required_together") or [] for name in group}
        created = {name for name, each in options.items() if each.get("apply_defaults") and each.get("default") is None}
        exclusive |= created & (together | set(parent.get("required_by") or {}))
        position = 0
        for name, option in options.items():
            properties = _child(schema, "properties")
            key = fields.get(name) or self._new_field(name, path)
            where = f"{path}.{key}"
            if key in properties:
                self._set_field(properties[key], option, where, lists, is_exclusive=name in exclusive)
            else:
                new: Schema = {}
                before = len(self.changes)
                self._set_field(new, option, where, lists, is_exclusive=name in exclusive)
                del self.changes[before:]
                _insert(properties, key, new, position)
                self._change(properties, where, f"new field of type {new.get('type', 'any')}")
                if path != "spec" and fields and "default" in new:
                    self._note(properties, where, _NEW_TO_EARLIER_ROLES)
            position = list(properties).index(key) + 1
            self._require(schema, key, where, is_required=bool(option.get("required")) or _must_be_set(option))

    def _fields_of(self, schema: Schema, path: str) -> dict[str, str]:
        """Return the fields of an object by their variables."""
        found: dict[str, str] = {}
        for key in schema.get("properties") or {}:
            name = snake_case(key) if self.snake_case else key
            if name in found:
                raise ArgumentSpecError(f"{path}: the fields {found[name]} and {key} are the same variable {name!r}")
            found[name] = key
        return found

    def _new_field(self, variable: str, path: str) -> str:
        first, *others = variable.split("_")
        camel_case = first + "".join(word[:1].upper() + word[1:] for word in others)
        for key in (camel_case, variable):
            if not self.snake_case:
                return variable
            if snake_case(key) == variable:
                return key
        raise ArgumentSpecError(
            f"{path}: no field becomes the variable {variable!r} in snake case ({variable} becomes "
            f"{snake_case(variable)}): rename the option, or set snakeCaseParameters to false in watches.yaml"
        )

    def _set_field(
        self, schema: Schema, option: Option, path: str, lists: tuple[Schema, ...], *, is_exclusive: bool
    ) -> None:
        kind = option.get("type")
        self._set_type(schema, kind, path)
        self._set_description(schema, option, path)
        if schema.get("nullable"):
            self._note(schema, path, "nullable is true, but the role's validation can reject null")
        values, values_kind, values_path = schema, kind or "str", path
        if kind == "list":
            values, values_kind, values_path = schema["items"], option.get("elements") or "raw", f"{path}[]"
            self._set_type(values, values_kind, values_path)
            lists = (*lists, schema)
        self._set_choices(values, option, values_kind, values_path)
        if values_kind == "dict":
            self._set_contents(values, option, values_path, lists)
        self._set_default(schema, option, path, is_exclusive=is_exclusive)

    def _set_type(self, schema: Schema, kind: str | None, path: str) -> None:
        """Set the type for an argument type; None is an argument without a type, which accepts everything."""
        found, is_mixed = schema.get("type"), bool(schema.get(_INT_OR_STRING))
        wanted = _TYPES.get(kind or "str", "string")
        if wanted is None:
            if not found and not is_mixed and not schema.get(_ANY):
                self._set(schema, _ANY, value=True, path=path)
        elif found != wanted and found not in _NARROWER.get(kind or "", ()):
            if (found and kind is None) or (is_mixed and wanted == "string" and kind not in _PATTERNS):
                return
            for key in [key for key in schema if key != "description"]:
                del schema[key]
            _insert(schema, "type", wanted, 0)
            self._change(schema, path, f"type: {wanted} instead of {found}" if found else f"type: {wanted}")
        if wanted == "array" and "items" not in schema:
            _insert(schema, "items", {_ANY: True})
        pattern = _PATTERNS.get(kind or "")
        if schema.get("pattern") in {*_PATTERNS.values()} - {pattern}:
            del schema["pattern"]
            self._change(schema, path, "pattern: removed")
        if pattern and "pattern" not in schema:
            self._set(schema, "pattern", pattern, path)

    def _set_description(self, schema: Schema, option: Option, path: str) -> None:
        found = option.get("description") or ""
        text = " ".join(" ".join(found if isinstance(found, list) else [str(found)]).split())
        if text and " ".join(str(schema.get("description", "")).split()) != text:
            self._set(schema, "description", text, path)

    def _set_choices(self, schema: Schema, option: Option, kind: str, path: str) -> None:
        choices = option.get("choices")
        if choices is None:
            return
        if kind not in COMPARED or _has_template(choices):
            self._note(
                schema, path, f"the choices aren't in the schema: it can't compare values of type {kind} with them"
            )
            return
        wanted = list(dict.fromkeys(int(each) if kind == "int" else each for each in choices))
        found = schema.get("enum")
        if found is None or len(found) != len(wanted) or any(each not in found for each in wanted):
            self._set(schema, "enum", wanted, path)

    def _set_contents(self, schema: Schema, option: Option, path: str, lists: tuple[Schema, ...]) -> None:
        """Set the fields of an object; without options, it accepts everything."""
        if option.get("options") is None:
            if not schema.keys() & {"properties", "additionalProperties", _ANY}:
                self._set(schema, _ANY, value=True, path=path)
            return
        for key in ("additionalProperties", _ANY):
            if schema.pop(key, None) is not None:
                self._change(schema, path, f"{key}: removed, because the role accepts only its options")
        self._set_fields(schema, option, path, lists)
        self._set_rules(schema, option, path, lists, {})

    def _set_default(self, schema: Schema, option: Option, path: str, *, is_exclusive: bool) -> None:
        wanted = option.get("default")
        if (
            wanted is None
            and option.get("apply_defaults")
            and option.get("type") == "dict"
            and not _must_be_set(option)
        ):
            wanted = {}
        if wanted is not None:
            value = self._with_fields(schema, option, wanted, path)
            # Ansible's own default doesn't count as set; that of the API server does.
            reason = "the rules would count it as set" if is_exclusive else self._flaw(schema, wanted, value)
            if reason:
                self._note(schema, path, f"the default {json.dumps(wanted)} isn't in the schema: {reason}")
            elif schema.get("default") != value:
                self._set(schema, "default", value, path)
        if "default" in schema and (is_exclusive or not _fits(schema, schema["default"])):
            del schema["default"]
            self._change(schema, path, "default: removed")

    def _with_fields(self, schema: Schema, option: Option, value: Any, path: str) -> Any:
        """Return the value of an option with the names of fields."""
        options = option.get("options")
        if options is None or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            return [self._with_fields(schema["items"], option, each, path) for each in value]
        fields = self._fields_of(schema, path)
        return {
            fields[name]: self._with_fields(schema["properties"][fields[name]], options[name], each, path)
            if name in options
            else each
            for name, each in value.items()
            if name in fields
        }

    def _flaw(self, schema: Schema, default: Any, value: Any) -> str:
        """Return the reason why the schema can't contain a default, whose value with the names of fields is given."""
        if _has_template(default):
            return "it is a template"
        if (snake_case_keys(value) if self.snake_case else value) != default:
            return "its keys aren't the names of variables"
        if not _fits(schema, value):
            return f"it isn't a value of type {schema.get('type')} that the schema accepts"
        return "its fields have rules" if isinstance(value, dict | list) and value and _has_rules(schema) else ""

    def _set_rules(
        self, schema: Schema, parent: Option, path: str, lists: tuple[Schema, ...], given: Mapping[str, Any]
    ) -> None:
        """Replace the generated rules of an object."""
        fields = self._fields_of(schema, path)
        scope = RuleScope(parent.get("options") or {}, fields, schema.get("properties") or {}, given, lists)
        old = schema.get(_RULES) or []
        by_hand = [each for each in old if not GENERATED.search(str(each.get("message")))]
        new: dict[str, str] = {}
        for key in RULE_KEYS:
            try:
                new |= dict(rules_of(key, parent.get(key) or (), scope))
            except InexpressibleError as error:
                self._note(schema, path, f"{key} isn't in the schema: {error}")
        rules = [{"rule": rule, "message": message} for rule, message in new.items()]
        for each in [each for each in old if each not in by_hand and each not in rules]:
            self._change(schema, path, f"rule removed: {each['message']}")
        for each in [each for each in rules if each not in old]:
            self._change(schema, path, f"new rule: {each['message']}")
        if any(each not in old for each in rules) or len(old) != len(by_hand) + len(rules):
            schema.pop(_RULES, None)
            if by_hand or rules:
                _insert(schema, _RULES, [*by_hand, *rules])

    def _require(self, schema: Schema, key: str, path: str, *, is_required: bool) -> None:
        found = schema.get("required") or []
        if is_required and key not in found and "default" not in schema["properties"][key]:
            if found:
                found.append(key)
            else:
                _insert(schema, "required", [key])
            self._change(schema, path, "required")
        elif not is_required and key in found:
            found.remove(key)
            if not found:
                del schema["required"]
            self._change(schema, path, "no longer required")

    def _set(self, schema: Schema, key: str, value: Any, path: str) -> None:
        found = json.dumps(schema[key], ensure_ascii=False) if key in schema else ""
        text = f"{key}: {json.dumps(value, ensure_ascii=False)}" + (f" instead of {found}" if found else "")
        self._change(schema, path, "new description" if key == "description" else text)
        _insert(schema, key, value)

    def _change(self, schema: Schema, path: str, text: str) -> None:
        self.changes.append(self._finding(schema, path, text))

    def _note(self, schema: Schema, path: str, text: str) -> None:
        self.notes.append(self._finding(schema, path, text))

    def _finding(self, schema: Schema, path: str, text: str) -> Finding:
        """Return the finding about a part of the schema, which knows its line if it comes from a file."""
        position = getattr(schema, "lc", None)
        return Finding(self.file, position.line + 1 if position else None, self.kind, path, text)


def _child(schema: Schema, key: str) -> Schema:
    """Return the mapping under a key, which is created if it is missing."""
    if not isinstance(schema.get(key), MutableMapping):
        _insert(schema, key, {})
    child: Schema = schema[key]
    return child


def _insert(schema: Schema, key: str, value: Any, position: int | None = None) -> None:
    """Set a key. A new key goes to a position, by default after those that come before it by convention.

    Mappings of ruamel.yaml can insert. For them, a comment belongs to the key above it: a new last key would come
    between the comment and its subject, so it becomes the last but one.
    """
    if position is None:
        before = _ORDER[: _ORDER.index(key)] if key in _ORDER else schema.keys()
        position = max((index for index, each in enumerate(schema, 1) if each in before), default=0)
    if key in schema:
        schema[key] = value
    elif hasattr(schema, "insert"):
        schema.insert(position - (position == len(schema) and _ends_with_comment(schema)), key, value)
    else:
        items = [*schema.items()]
        schema.clear()
        schema.update([*items[:position], (key, value), *items[position:]])


def _ends_with_comment(node: Any) -> bool:
    last = next(reversed(node), None) if isinstance(node, Mapping) else len(node) - 1
    if not node or not hasattr(node, "ca"):
        return False
    value = node[last]
    is_nested = isinstance(value, Mapping | list) and bool(value)
    return last in node.ca.items or bool(getattr(value, "comment", None)) or (is_nested and _ends_with_comment(value))


def _must_be_set(option: Option) -> bool:
    """Return whether Ansible rejects the value that it creates from the options' defaults if there is none.

    A field without a value is required only then. Only Ansible's validator knows: a rule may hold for the defaults. The
    value of a template is unknown, so its type doesn't count.
    """
    if not option.get("apply_defaults"):
        return False
    # Ansible's modules take a while to import, and most commands don't need them.
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # noqa: PLC0415
    from ansible.module_utils.errors import ArgumentTypeError, ArgumentValueError, ElementError  # noqa: PLC0415

    # The validator changes the defaults in the specs.
    validator = ArgumentSpecValidator({"option": copy.deepcopy({**option, "required": False})})
    errors = validator.validate({}, validate_role_argument_spec=True).errors
    unknown = (ArgumentTypeError, ArgumentValueError, ElementError) if _has_template(option) else ()
    return any(not isinstance(each, unknown) for each in errors)


def _has_template(value: Any) -> bool:
    text = json.dumps(value, default=str)
    return "{{" in text or "{%" in text


def _has_rules(schema: Schema) -> bool:
    nested = [*(schema.get("properties") or {}).values(), schema.get("items") or {}]
    return bool(schema.get(_RULES)) or any(_has_rules(each) for each in nested if each)


def is_of_type(value: object, kind: str) -> bool:
    """Return whether a value has a type of a schema, one of ``PYTHON_TYPES``; in Python, booleans are integers too."""
    return isinstance(value, PYTHON_TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _fits(schema: Schema, value: Any) -> bool:
    """Return whether a value has the types, the required fields, and the choices of a schema."""
    kind = schema.get("type")
    if kind and not is_of_type(value, kind):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str) and schema.get("pattern") in _PATTERNS.values():
        return re.search(schema["pattern"], value) is not None
    if isinstance(value, list):
        return all(_fits(schema.get("items") or {}, each) for each in value)
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        missing = [key for key in schema.get("required") or [] if key not in value]
        return not missing and all(key in fields and _fits(fields[key], each) for key, each in value.items())
    return True
