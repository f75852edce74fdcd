"""Creates projects, and adds kinds to them.

``init_project`` and ``create_api`` only read, and return the files to write. They raise ScaffoldError for invalid
names, for a directory that isn't a project, and for files to which they can't add an entry. ``ProjectFiles.write``
writes all files or none: a new file never replaces an existing one, all conflicts are reported together, and a failed
write removes or restores every file.

Files come from the trees below ``templates``, with ``%{value}`` as placeholders. In paths, ``_name_`` and ``_plural_``
stand for these values, and ``dot.`` for a leading dot. A missing value is a ``KeyError``: a bug.

A new entry of a YAML list comes after its last item, with the same indentation, and changes no other character,
comments included. The result is parsed again to verify that it is the old content plus the item. Where that isn't
possible, as in a list in brackets, the error states the change to make by hand.

``PROJECT`` records the version of rolecall and the arguments for each kind, and ``.scaffold.jsonl`` each file as it was
generated, one per line. ``rolecall update`` compares both with ``scaffold_files``, the files of this version.
"""

import json
import re
import string
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.kube.references import GVK, plural_of
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.reader import digest_of, to_line
from rolecall.runner.runs.variables import object_variable
from rolecall.workbench.project.argument_specs import RoleArguments
from rolecall.workbench.project.crd_files import CrdFile
from rolecall.workbench.project.watches_schema import schema_text
from rolecall.workbench.yaml_files import last_line, with_lines

FOLDER = Path(__file__).parent / "templates"
_ENDING = ".tmpl"
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN_FORM = (
    "a DNS name such as example.com: lower case letters, digits, '-' and '.', at most 253 characters, and at most 63 "
    "between two dots"
)
_DOMAIN = (rf"{_LABEL}(?:\.{_LABEL})*", 253, _DOMAIN_FORM)
_NAMES = {
    # Both leave room for suffixes: the name of the namespace, for example, is a label too.
    "NAME": (_NAME, 40, "at most 40 lower case letters, digits and '-', starting with a letter, not ending in '-'"),
    "--kind": (r"[A-Z][A-Za-z0-9]*", 50, "at most 50 letters and digits, starting with a capital, such as WebSite"),
    "--plural": (_NAME, 63, "lower case letters, digits and '-', starting with a letter, such as websites"),
    "--version": (r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?", 63, "a version such as v1, v1alpha1 or v2beta3"),
    "--domain": _DOMAIN,
    "--group": _DOMAIN,
    "--group with the domain": _DOMAIN,
}
"""The form, the greatest length, and the description of each name, by the argument that gives it."""
_PROTECTED = re.compile(r"(?:^|\.)(?:k8s|kubernetes)\.io$")

PROJECT_FILE = "PROJECT"
ORIGINALS_FILE = ".scaffold.jsonl"
SCHEMA_FILE = "watches.schema.json"
_WATCHES = "watches.yaml"
_INDENT_OF_TASKS = " " * 4


class _Text(string.Template):
    """A template whose placeholders do not collide with those of make, shells and Ansible."""

    delimiter: ClassVar[str] = "%"


def render_tree(tree: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the contents of the files of a tree, by their path in the project."""
    top = FOLDER / tree
    found = {}
    for source in sorted(top.rglob(f"*{_ENDING}")):
        name = source.name.removesuffix(_ENDING)
        path = (source.relative_to(top).parent / (name[3:] if name.startswith("dot.") else name)).as_posix()
        path = path.replace("_name_", values.get("name", "")).replace("_plural_", values.get("plural", ""))
        text = _rendered(source, values)
        found[path] = sealed(text) if path.endswith(SUFFIX) else text
    return found


def render_snippet(name: str, values: Mapping[str, str]) -> str:
    """Return a part of a file, without a newline at the end."""
    return _rendered(FOLDER / "snippets" / f"{name}{_ENDING}", values).rstrip("\n")


def new_definition(names: "KindNames", description: str) -> str:
    """Return the CRD of a kind whose spec has no fields yet."""
    values = names.values() | {"description": json.dumps(description, ensure_ascii=False), "columns": ""}
    return _rendered(FOLDER / "api/deploy/crds/_plural_.yaml.tmpl", values)


def sealed(record: str) -> str:
    """Return a record with the digest of its lines, which have other names than those that were recorded."""
    *lines, end = record.splitlines()
    last = to_line({**json.loads(end), "digest": digest_of(lines)})
    return "".join(f"{line}\n" for line in (*lines, last))


def _rendered(source: Path, values: Mapping[str, str]) -> str:
    return _Text(source.read_text(encoding="utf-8")).substitute(values, rolecall=version("rolecall"))


class ScaffoldError(Exception):
    """Nothing was written; the message states what was found, where, and what to do."""


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The files to create and the files to extend below a directory: contents by relative path."""

    directory: Path
    created: dict[str, str]
    extended: dict[str, str]

    def write(self) -> None:
        """Write all files.

        Raise ScaffoldError if files are in the way or cannot be written; then nothing has changed.
        """
        done: list[Path] = []
        before: dict[str, bytes] = {}
        try:
            if conflicts := list(self._conflicts()):
                found = "\n  ".join(conflicts)
                raise ScaffoldError(
                    f"{self.directory}: these files exist and are never overwritten:\n  {found}\nNothing was written."
                )
            before |= {path: (self.directory / path).read_bytes() for path in self.extended}
            for path, text in self.created.items():
                self._create(self.directory / path, text, done)
            for path, text in self.extended.items():
                (self.directory / path).write_text(text, encoding="utf-8")
        except OSError as error:
            self._roll_back(done, before)
            raise ScaffoldError(f"{error}. Nothing was written.") from error

    def _conflicts(self) -> Iterator[str]:
        for path in sorted(self.created):
            target = self.directory / path
            file_above = next((above for above in target.parents if above.exists() and not above.is_dir()), None)
            if file_above is not None:
                yield f"{file_above} (expected a directory)"
            elif target.exists() or target.is_symlink():
                yield path

    def _create(self, target: Path, text: str, done: list[Path]) -> None:
        for directory in reversed([target.parent, *target.parent.parents]):
            if not directory.exists():
                directory.mkdir()
                done.append(directory)
        with target.open("x", encoding="utf-8") as file:
            done.append(target)
            file.write(text)

    def _roll_back(self, done: list[Path], before: dict[str, bytes]) -> None:
        for path, text in before.items():
            (self.directory / path).write_bytes(text)
        for made in reversed(done):
            if made.is_dir():
                made.rmdir()
            else:
                made.unlink()


def append_item(text: str, key: str | None, item: str, where: str) -> str:
    """Return the text with the item appended to the list under the key (None: the document is the list).

    ``item`` is a YAML list with one item. A list that already has the item stays as it is. ``where`` is the file name
    for the error.
    """
    try:
        before, [added] = yaml.safe_load(text), yaml.safe_load(item)
        if added in ((before if key is None else before.get(key)) or ()):
            return text
        expected = [*(before or []), added] if key is None else {**before, key: [*(before.get(key) or []), added]}
        changed = _inserted(text, key, item)
        if changed is not None and yaml.safe_load(changed) == expected:
            return changed
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ScaffoldError(f"{where}: {error}") from error
    place = f"the list {key!r}" if key else "the list"
    raise ScaffoldError(
        f"{where}: cannot add an item: expected {place} in block style, with one item on each line. "
        "Change the file and try again. Nothing was written."
    )


def list_items(text: str, where: str) -> list[Any]:
    """Return the items of a document. Raise ScaffoldError if it is not a list; ``where`` is the file name."""
    try:
        found = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise ScaffoldError(f"{where}: {error}") from error
    if not isinstance(found, list):
        raise ScaffoldError(f"{where}: expected a list, found {type(found).__name__}")
    return found


def _inserted(text: str, key: str | None, item: str) -> str | None:
    """Return the text with the item, None if the list isn't in block style."""
    node: Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    if key is not None:
        fields = node.value if isinstance(node, MappingNode) else ()
        node = next((value for name, value in fields if name.value == key), None)
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        at, indent = last_line(node) + 1, node.start_mark.column
    elif isinstance(node, ScalarNode) and key is not None:
        at, indent = node.start_mark.line + 1, 2
    elif key is None and (node is None or isinstance(node, ScalarNode)):
        at, indent = len(text.splitlines()), 0
    else:
        return None
    is_entry = key is None and node is not None and not isinstance(node, ScalarNode)
    gap = [""] if is_entry and "\n" in item else []
    return with_lines(text, at, [*gap, *item.splitlines()], indent=indent)


def checked(where: str, text: str) -> str:
    """Return a name that was given by this argument. Raise ScaffoldError if it doesn't have the form of such names."""
    pattern, longest, expected = _NAMES[where]
    if where == "--domain" and _PROTECTED.search(text):
        expected = "a domain of your own; API groups below this one are protected by Kubernetes"
    elif re.fullmatch(pattern, text) and len(text) <= longest:
        return text
    raise ScaffoldError(f"{where}: expected {expected}, found {text!r}")


def checked_group(group: str, domain: str) -> str:
    """Return the full name of a group, which ends in the domain. Raise ScaffoldError."""
    return checked("--group with the domain", f"{checked('--group', group)}.{domain}")


@dataclass(frozen=True, slots=True)
class KindNames:
    """Every name of one kind in one project; ``group`` is the full one."""

    project: str
    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def name(self) -> str:
        """The kind in lower case: the name of the role, the files and the sample."""
        return self.kind.lower()

    def values(self) -> dict[str, str]:
        """Return the values for the templates, by their name there."""
        kind = GVK(self.group, self.version, self.kind)
        derived = {"namespace": self.project.replace("-", "_"), "name": self.name, "object": object_variable(kind)}
        named = {name: value for name, value in asdict(self).items() if isinstance(value, str)}
        scoped = _namespaced_values(self.name) if self.is_namespaced else _cluster_values(self.kind, self.name)
        return named | derived | scoped


def _namespaced_values(name: str) -> dict[str, str]:
    """Return the values of a kind whose objects, and what they need, are in namespaces."""
    return {
        "scope": "Namespaced",
        "namespaced": "true",
        "sample": f"{name}-sample",
        "home": "{{ ansible_operator_meta.namespace }}",
        "argument": " -e cr_namespace=NAMESPACE",
        "where": ", NAMESPACE",
        "namespace_line": f"    namespace: {name}-sample\n",
        "namespace_task": "",
        "namespace_rule": "",
        "users_note": "",
    }


def _cluster_values(kind: str, name: str) -> dict[str, str]:
    """Return the values of a cluster-scoped kind: what an object needs is in a namespace with its name and a prefix."""
    home = f"{name}-{{{{ ansible_operator_meta.name }}}}"
    return {
        "scope": "Cluster",
        "namespaced": "false",
        "sample": "sample",
        "home": home,
        "argument": "",
        "where": "",
        "namespace_line": "",
        "namespace_task": f"{render_snippet('namespace_task', {'kind': kind, 'home': home})}\n\n",
        "namespace_rule": f"{render_snippet('namespace_rule', {})}\n",
        "users_note": f"# A {kind} is in no namespace, so users need a ClusterRoleBinding.\n",
    }


@dataclass(frozen=True, slots=True)
class NewKind:
    """The kind to add. ``group`` is without the domain; if ``plural`` is None, the English plural is used.

    Without a playbook, the kind always has a role.
    """

    group: str
    version: str
    kind: str
    plural: str | None = None
    with_role: bool = False
    with_playbook: bool = False
    is_namespaced: bool = True

    @property
    def has_role(self) -> bool:
        """Whether a role reconciles the kind, called by the playbook if there is one."""
        return self.with_role or not self.with_playbook


def init_project(directory: Path, name: str, domain: str) -> ProjectFiles:
    """Return the files of a new project with this name, whose API groups end in the domain."""
    files = _project_files(checked("NAME", name), checked("--domain", domain))
    return ProjectFiles(directory, {**files, ORIGINALS_FILE: originals_text(files)}, {})


def _project_files(name: str, domain: str) -> dict[str, str]:
    values = {"project": name, "domain": domain}
    return {**render_tree("project", values), SCHEMA_FILE: schema_text()}


def create_api(directory: Path, new_kind: NewKind) -> ProjectFiles:
    """Return the files that add a kind to the project in the directory."""
    names = _names(_read_project(directory), new_kind)
    _check_unwatched(directory, names)
    created = _kind_files(names, new_kind)
    additions = _additions(names, new_kind)
    extended = _extended(partial(_read, directory), additions, directory)
    if (directory / ORIGINALS_FILE).exists():
        originals = read_originals(directory)
        originals |= created | _extended(originals.__getitem__, additions, directory / ORIGINALS_FILE)
        extended[ORIGINALS_FILE] = originals_text(originals)
    return ProjectFiles(directory, created, extended)


def scaffold_files(directory: Path) -> dict[str, str]:
    """Return the files that this version generates for the project in the directory and the kinds in its PROJECT.

    Raise ScaffoldError if PROJECT is invalid.
    """
    project, where = _read_project(directory), directory / PROJECT_FILE
    files = _project_files(project["projectName"], project["domain"])
    try:
        kinds = [
            NewKind(
                group=each["group"],
                version=each["version"],
                kind=each["kind"],
                plural=each["plural"],
                with_role=each["role"],
                with_playbook=each["playbook"],
                is_namespaced=each.get("namespaced", True),  # older versions had only namespaced kinds
            )
            for each in project.get("kinds") or ()
        ]
    except (KeyError, TypeError) as error:
        raise ScaffoldError(
            f"{where}: expected group, version, kind, plural, role, and playbook of each kind: {error!r}"
        ) from error
    for kind in kinds:
        names = _names(project, kind)
        files |= _kind_files(names, kind) | _extended(files.__getitem__, _additions(names, kind), where)
    return files


def originals_text(files: Mapping[str, str]) -> str:
    """Return the content of the file of originals, for files by path."""
    return "".join(f"{to_line({'path': path, 'text': text})}\n" for path, text in sorted(files.items()))


def read_originals(directory: Path) -> dict[str, str]:
    """Return the files of the project as they were generated, by path. Raise ScaffoldError."""
    if not (directory / ORIGINALS_FILE).is_file():
        raise ScaffoldError(
            f"{directory / ORIGINALS_FILE}: file not found. It has the files as they were generated, for comparison: "
            "restore it from Git"
        )
    try:
        found = map(json.loads, _read(directory, ORIGINALS_FILE).splitlines())
        return {str(each["path"]): str(each["text"]) for each in found}
    except (ValueError, KeyError, TypeError) as error:
        raise ScaffoldError(
            f"{directory / ORIGINALS_FILE}: expected an object with path and text in each line: {error!r}. Restore the "
            "file from Git"
        ) from error


def _kind_files(names: KindNames, new_kind: NewKind) -> dict[str, str]:
    values = names.values()
    tasks = render_snippet("tasks", values)
    described = {"description": "Keeps a message in a ConfigMap.", "columns": f"{render_snippet('columns', {})}\n"}
    created = render_tree("api", values | described)
    created |= render_tree("namespaced" if names.is_namespaced else "cluster", values)
    role = render_tree("role", values | {"tasks": tasks})
    created |= _with_fields(names, created, role)
    if new_kind.has_role:
        created |= role
    if new_kind.with_playbook:
        content = render_snippet("role_call", values) if new_kind.has_role else tasks
        created |= render_tree("playbook", values | {"tasks": textwrap.indent(content, _INDENT_OF_TASKS)})
    else:
        created |= render_tree("once", values)
    return created


def _with_fields(names: KindNames, created: Mapping[str, str], role: Mapping[str, str]) -> dict[str, str]:
    """Return the file of the kind's CRD, with the fields of the role's arguments."""
    path, specs = f"deploy/crds/{names.plural}.yaml", f"roles/{names.name}/meta/argument_specs.yml"
    entry = yaml.safe_load(role[specs])["argument_specs"]["main"]
    file = CrdFile.parse(Path(path), created[path])
    watch = Watch(GVK(names.group, names.version, names.kind), RoleContent(Path("roles", names.name)))
    file.sync(watch, RoleArguments(entry, {}))
    return {path: file.render()}


def _read_project(directory: Path) -> dict[str, Any]:
    """Return the content of PROJECT, with a valid name and domain. Raise ScaffoldError."""
    try:
        found: Any = yaml.safe_load(_read(directory, PROJECT_FILE))
        named = {
            "projectName": checked("NAME", str(found["projectName"])),
            "domain": checked("--domain", str(found["domain"])),
        }
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ScaffoldError(
            f"{directory / PROJECT_FILE}: expected the keys projectName and domain: {error!r}"
        ) from error
    return {**found, **named}


def _names(project: Mapping[str, Any], new_kind: NewKind) -> KindNames:
    kind = checked("--kind", new_kind.kind)
    group = checked_group(new_kind.group, project["domain"])
    plural = plural_of(kind) if new_kind.plural is None else new_kind.plural
    return KindNames(
        project["projectName"],
        group,
        checked("--version", new_kind.version),
        kind,
        checked("--plural", plural),
        new_kind.is_namespaced,
    )


def _check_unwatched(directory: Path, names: KindNames) -> None:
    for entry in list_items(_read(directory, _WATCHES), str(directory / _WATCHES)):
        found = [entry.get(key) for key in ("group", "version", "kind")] if isinstance(entry, dict) else []
        if found == [names.group, names.version, names.kind]:
            raise ScaffoldError(
                f"{directory / _WATCHES}: already has an entry for {names.group}/{names.version}, kind {names.kind!r}. "
                "Nothing was written."
            )


def _additions(names: KindNames, new_kind: NewKind) -> tuple[tuple[str, str | None, str], ...]:
    """Return the items that a kind adds to files: path, key of the list, and item."""
    run = f"playbook: playbooks/{names.name}.yml" if new_kind.with_playbook else f"role: {names.name}"
    recorded = {
        "group": new_kind.group,
        "role": str(new_kind.has_role).lower(),
        "playbook": str(new_kind.with_playbook).lower(),
    }
    return (
        (PROJECT_FILE, "kinds", render_snippet("kind", names.values() | recorded)),
        (_WATCHES, None, render_snippet("watch", names.values() | {"content": run})),
        ("demo.yaml", "goals", render_snippet("goal", names.values())),
        ("deploy/crds/kustomization.yaml", "resources", f"- {names.plural}.yaml"),
        ("deploy/rbac/kustomization.yaml", "resources", f"- {names.name}.yaml"),
        ("deploy/samples/kustomization.yaml", "resources", f"- {names.name}.yaml"),
        ("deploy/users/kustomization.yaml", "resources", f"- {names.name}.yaml"),
    )


def _extended(
    read: Callable[[str], str], additions: tuple[tuple[str, str | None, str], ...], where: Path
) -> dict[str, str]:
    return {path: append_item(read(path), key, item, str(where / path)) for path, key, item in additions}


def _read(directory: Path, path: str) -> str:
    try:
        return (directory / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScaffoldError(
            f"{directory / path}: file not found. Run this in a project of 'rolecall init', or use --project DIR. If "
            "an older rolecall created the project, run 'rolecall update' first"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScaffoldError(f"{directory / path}: {error}") from error
