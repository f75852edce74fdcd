"""Templates of roles, compiled before the fork. Saves 17 ms of a run.

The code that Jinja compiles from a template depends on its text, on the environment's settings, and on how the filters
and tests in it are called. The server compiles the templates that it finds in the roles' files. A run with the same
text uses the code if settings and filters are the same, and compiles the template itself if not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from ansible._internal._datatag._tags import TrustedAsTemplate
from ansible._internal._templating import _engine, _jinja_bits
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
from jinja2 import nodes
from jinja2.environment import TemplateExpression

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
    """What the code depends on, besides filters and tests."""

    text: str
    is_expression: bool
    escape_backslashes: bool
    settings: tuple[object, ...]


class _Compiled(NamedTuple):
    code: CodeType
    calls: tuple[tuple[str, str, object], ...]
    """Filters and tests in the template: kind, name, and what Jinja has to pass to them."""


@dataclass(frozen=True, slots=True)
class Templates:
    """Compiled templates."""

    compiled: dict[_Key, _Compiled] = field(default_factory=dict)

    @classmethod
    def of_documents(cls, documents: Iterable[Any]) -> "Templates":
        """Compile the templates in these documents; those that cannot be compiled are left to the runs."""
        found = cls()
        environment = _engine.TemplateEngine(loader=None, variables={}).environment
        for text, is_expression in set(_texts(documents, is_condition=False)):
            try:
                key, compiled = _compile(environment, text, is_expression=is_expression)
            except Exception:  # noqa: BLE001, S112 - the run that uses it reports it
                continue
            found.compiled[key] = compiled
        return found

    def install(self) -> None:
        """Use them from now on in this process."""
        AnsibleEnvironment.compile = self._around_compile(AnsibleEnvironment.compile)
        AnsibleEnvironment.compile_expression = self._around_expression(AnsibleEnvironment.compile_expression)

    def _around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_(environment: Any, source: Any, *args: Any, **options: Any) -> Any:
            code = self._find(environment, source, is_expression=False) if not args and not options else None
            return original(environment, source, *args, **options) if code is None else code

        return compile_

    def _around_expression(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_expression(environment: Any, source: str, undefined_to_none: bool = True) -> Any:  # noqa: FBT001, FBT002
            code = self._find(environment, source, is_expression=True)
            if code is None:
                return original(environment, source, undefined_to_none)
            template = environment.template_class.from_code(environment, code, environment.make_globals(None), None)
            return TemplateExpression(template, undefined_to_none)

        return compile_expression

    def _find(self, environment: Any, source: Any, *, is_expression: bool) -> CodeType | None:
        if not isinstance(source, str):
            return None
        found = self.compiled.get(_key(environment, source, is_expression=is_expression))
        return found.code if found and all(_passed(environment, *call[:2]) == call[2] for call in found.calls) else None


def _key(environment: Any, text: str, *, is_expression: bool) -> _Key:
    context = _jinja_bits._TemplateCompileContext.current(optional=True)  # noqa: SLF001 - what the lexer asks too
    settings = tuple(getattr(environment, name) for name in _SETTINGS)
    return _Key(str(text), is_expression, bool(context and context.escape_backslashes), (type(environment), *settings))


def _compile(environment: Any, text: str, *, is_expression: bool) -> tuple[_Key, _Compiled]:
    """Compile as ansible-core does for the arguments and the conditions of a task."""
    tagged = TrustedAsTemplate().tag(text)
    codes: list[CodeType] = []
    environment.compile = _recording(environment.compile, codes)
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
    calls = {("filters", node.name) for node in tree.find_all(nodes.Filter)}
    calls |= {("tests", node.name) for node in tree.find_all(nodes.Test)}
    return key, _Compiled(
        codes[0], tuple((kind, name, _passed(environment, kind, name)) for kind, name in sorted(calls))
    )


def _recording(compile_code: Callable[[Any], CodeType], codes: list[CodeType]) -> Callable[[Any], CodeType]:
    def compile_(source: Any) -> CodeType:
        codes.append(compile_code(source))
        return codes[-1]

    return compile_


def _passed(environment: Any, kind: str, name: str) -> object:
    """Return what Jinja has to pass to a filter or test. Raises KeyError if there is none of that name."""
    return getattr(getattr(environment, kind)[name], _PASSED, None)


def _texts(value: Any, *, is_condition: bool) -> Iterator[tuple[str, bool]]:
    """Yield each text that a run may compile, and whether it is an expression."""
    if isinstance(value, str):
        if is_condition:
            yield str(value), True
        elif any(delimiter in value for delimiter in _DELIMITERS):
            yield str(value), False
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, is_condition=key in _CONDITIONS)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _texts(inner, is_condition=is_condition)
