"""Templates of roles, compiled before the fork. Saves 17 ms of a run.

The code that Jinja compiles from a template depends on its source, on the environment's settings, and on how the
filters and tests in it are called. The server compiles the templates that it finds in the roles' files. A run with the
same source uses the code if settings and filters are the same, and compiles the template itself if not.

ansible-core before 2.19 rewrites every expression into a template, and enables Jinja's optimizer, which evaluates
filters of constants when it compiles. Runs compile templates with such filters themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from ansible import template as ansible_template
from ansible.parsing.dataloader import DataLoader
from jinja2 import nodes
from jinja2.environment import TemplateExpression
from jinja2.exceptions import TemplateSyntaxError

from rolecall.system.wrapping import wrap

try:
    from ansible._internal._templating import _engine, _jinja_bits
    from ansible._internal._templating._jinja_bits import AnsibleEnvironment
except ImportError:  # before 2.19
    from ansible.playbook.conditional import Conditional
    from ansible.template import AnsibleEnvironment

    _engine = _jinja_bits = None

_CONDITIONS = frozenset({"when", "failed_when", "changed_when", "until", "that", "break_when"})
_DELIMITERS = ("{{", "{%")
_PASSED = "jinja_pass_arg"
_SETTINGS = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
    "optimized",
    "autoescape",
    "is_async",
    "finalize",
    "_debuggable_template_source",
)


class _Key(NamedTuple):
    """The inputs that determine the code, besides filters and tests."""

    text: str
    is_expression: bool
    escape_backslashes: bool
    settings: tuple[object, ...]


class _Compiled(NamedTuple):
    code: CodeType
    calls: tuple[tuple[str, str, object], ...]
    """Filters and tests in the template: kind, name, and the argument that Jinja has to add."""


@dataclass(frozen=True, slots=True)
class Templates:
    """Compiled templates."""

    compiled: dict[_Key, _Compiled] = field(default_factory=dict)

    @classmethod
    def of_documents(cls, documents: Iterable[Any]) -> "Templates":
        """Compile the templates in these documents; runs compile those that fail here."""
        found = cls()
        compile_ = _compile if _engine else _compile_rewritten
        environment = (_engine.TemplateEngine if _engine else ansible_template.Templar)(None, {}).environment
        for text, is_expression in set(_sources(documents, is_condition=False)):
            try:
                key, compiled = compile_(environment, text, is_expression=is_expression)
            except Exception:  # noqa: BLE001, S112 - the run that uses it reports it
                continue
            found.compiled[key] = compiled
        return found

    def install(self) -> None:
        """Use them in this process."""
        wrap(AnsibleEnvironment, "compile", self._around_compile)
        if _engine:
            wrap(AnsibleEnvironment, "compile_expression", self._around_expression)

    def _around_compile(
        self, original: Callable[..., Any], environment: Any, source: Any, *args: Any, **options: Any
    ) -> Any:
        code = self._find(environment, source, is_expression=False) if not args and not options else None
        return original(environment, source, *args, **options) if code is None else code

    def _around_expression(
        self,
        original: Callable[..., Any],
        environment: Any,
        source: str,
        undefined_to_none: bool = True,  # noqa: FBT001, FBT002 - as the original
    ) -> Any:
        code = self._find(environment, source, is_expression=True)
        if code is None:
            return original(environment, source, undefined_to_none)
        template = environment.template_class.from_code(environment, code, environment.make_globals(None), None)
        return TemplateExpression(template, undefined_to_none)

    def _find(self, environment: Any, source: Any, *, is_expression: bool) -> CodeType | None:
        if not isinstance(source, str):
            return None
        found = self.compiled.get(_key(environment, source, is_expression=is_expression))
        with suppress(TemplateSyntaxError):  # raised for an unknown filter before 2.19
            if found and all(_passed(environment, *call[:2]) == call[2] for call in found.calls):
                return found.code
        return None


def _key(environment: Any, text: str, *, is_expression: bool) -> _Key:
    context = _jinja_bits and _jinja_bits._TemplateCompileContext.current(optional=True)  # noqa: SLF001 - as the lexer
    settings = tuple(getattr(environment, name, None) for name in _SETTINGS)
    return _Key(str(text), is_expression, bool(context and context.escape_backslashes), (type(environment), *settings))


def _compile(environment: Any, text: str, *, is_expression: bool) -> tuple[_Key, _Compiled]:
    """Compile as ansible-core does for the arguments and the conditions of a task."""
    tagged = ansible_template.trust_as_template(text)
    codes: list[CodeType] = []
    compile_code = environment.compile

    def record(source: Any) -> CodeType:
        codes.append(compile_code(source))
        return codes[-1]

    environment.compile = record
    try:
        with _jinja_bits._TemplateCompileContext(escape_backslashes=not is_expression):  # noqa: SLF001 - no public way
            key = _key(environment, text, is_expression=is_expression)
            tree = environment.parse(f"{{{{ {text} }}}}" if is_expression else text)
            if is_expression:
                environment.compile_expression(tagged, False)  # noqa: FBT003 - as ansible-core calls it
            else:
                environment.from_string(tagged)
    finally:
        del environment.compile  # uncovers the method of its class
    return key, _Compiled(codes[0], _calls_in(tree, environment))


def _compile_rewritten(_: Any, text: str, *, is_expression: bool) -> tuple[_Key, _Compiled]:
    """Compile as ansible-core before 2.19 does, which rewrites templates and conditions. Raises any exception."""
    environment, source = _rewritten(text, is_expression=is_expression)
    tree = environment.parse(source)
    for call in tree.find_all((nodes.Filter, nodes.Test)):
        if not any(call.find_all(nodes.Name)):
            raise ValueError(f"the optimizer may evaluate {call.name} of a constant")
    key = _key(environment, source, is_expression=False)
    return key, _Compiled(environment.compile(source), _calls_in(tree, environment))


def _rewritten(text: str, *, is_expression: bool) -> tuple[Any, str]:
    """Return the environment and the source that ansible-core makes Jinja compile for a template or a condition."""

    class FoundError(BaseException):
        """Stops the evaluation before anything is compiled."""

    def compile_(environment: Any, source: str) -> Any:
        raise FoundError(environment, source)

    templar = ansible_template.Templar(loader=None)
    original = AnsibleEnvironment.compile
    AnsibleEnvironment.compile = compile_
    try:
        if is_expression:
            Conditional(DataLoader())._check_conditional(text, templar, {})  # noqa: SLF001 - as tasks do
        else:
            templar.template(text)
    except FoundError as found:
        return found.args[0], found.args[1]
    finally:
        AnsibleEnvironment.compile = original
    raise ValueError("not a template")


def _calls_in(tree: nodes.Template, environment: Any) -> tuple[tuple[str, str, object], ...]:
    calls = {("filters", node.name) for node in tree.find_all(nodes.Filter)}
    calls |= {("tests", node.name) for node in tree.find_all(nodes.Test)}
    return tuple((kind, name, _passed(environment, kind, name)) for kind, name in sorted(calls))


def _passed(environment: Any, kind: str, name: str) -> object:
    """Return the kind of argument that Jinja adds for a filter or test. Raises KeyError if no such one exists."""
    return getattr(getattr(environment, kind)[name], _PASSED, None)


def _sources(value: Any, *, is_condition: bool) -> Iterator[tuple[str, bool]]:
    """Yield each string that a run may compile, and whether it is an expression."""
    if isinstance(value, str):
        if is_condition:
            yield str(value), True
        elif any(delimiter in value for delimiter in _DELIMITERS):
            yield str(value), False
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _sources(inner, is_condition=key in _CONDITIONS)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _sources(inner, is_condition=is_condition)
