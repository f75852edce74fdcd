"""``rolecall generate crds``: the CRDs of watched kinds, with the fields that the roles' argument specs describe.

Only reads: the result contains the new texts of the files. A kind without a CRD gets a new file, with the template of
``rolecall create api``.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.kube.references import plural_of
from rolecall.runner.config.content import PlaybookContent
from rolecall.runner.config.watches import Watch
from rolecall.workbench.project.argument_specs import ArgumentSpecError, RoleArguments, read_role_arguments
from rolecall.workbench.project.crd_files import CrdError, CrdFile
from rolecall.workbench.project.crd_schema import Finding
from rolecall.workbench.project.scaffold import KindNames, ScaffoldError, append_item, new_definition
from rolecall.workbench.yaml_files import yaml_files

_OWNED_BY_KUBERNETES = (".k8s.io", ".kubernetes.io")


@dataclass(slots=True)
class Generation:
    """The changes to make, the new texts of their files, and one line for each error and for each kind left out."""

    changes: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    texts: dict[Path, str] = field(default_factory=dict)


def generate_crds(
    watches: Sequence[Watch], kinds: Sequence[str], directories: Sequence[Path], environment: Mapping[str, str]
) -> Generation:
    """Return the changes to the CRDs of these watched kinds (none: of all) in these directories.

    A new file goes to the first directory. A named kind must have a role with argument specs.
    """
    done = Generation()
    known = {watch.gvk.kind for watch in watches}
    for kind in kinds:
        if kind not in known:
            nearest = difflib.get_close_matches(kind, known, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"its kinds are {', '.join(sorted(known)) or 'none'}"
            done.errors.append(f"the kind {kind!r} isn't in watches.yaml; {hint}")
    files = _read_files(directories, done)
    for watch in watches:
        if watch.gvk.kind in kinds or not kinds:
            try:
                _sync(watch, files, directories[0], environment, done)
            except _SkippedError as error:
                (done.errors if kinds else done.skipped).append(f"{watch.gvk.kind}: {error}")
            except (ArgumentSpecError, CrdError, ScaffoldError) as error:
                done.errors.append(f"{watch.gvk.kind}: {error}")
    changed = {change.file for change in done.changes}
    done.texts |= {file.path: file.render() for file in files if file.path in changed}
    return done


class _SkippedError(Exception):
    """A kind that has no CRD to generate; the message is the reason."""


def _read_files(directories: Iterable[Path], done: Generation) -> list[CrdFile]:
    files = []
    for path in yaml_files(*(each for each in directories if each.exists())):
        try:
            files.append(CrdFile.read(path))
        except CrdError as error:
            done.errors.append(str(error))
    return files


def _sync(
    watch: Watch, files: list[CrdFile], directory: Path, environment: Mapping[str, str], done: Generation
) -> None:
    found = next((each for each in files if each.definition(watch.gvk) is not None), None)
    group = watch.gvk.group
    if not found and ("." not in group or group.endswith(_OWNED_BY_KUBERNETES)):
        raise _SkippedError(f"the group {group or 'core'!r} is one of Kubernetes, so it has no CRD here")
    try:
        arguments = read_role_arguments(watch, environment)
    except ArgumentSpecError as error:
        if isinstance(watch.content, PlaybookContent):
            raise _SkippedError(str(error)) from error
        raise
    file = found or _new_file(watch, arguments, directory, done)
    result = file.sync(watch, arguments)
    done.notes += (*result.unknown, *result.notes)
    if found:
        done.changes += result.changes
    else:
        done.changes.append(Finding(file.path, None, watch.gvk.kind, "spec", "new file"))
        files.append(file)


def _new_file(watch: Watch, arguments: RoleArguments, directory: Path, done: Generation) -> CrdFile:
    """Return the file of a kind without one, and add it to the kustomization of the directory."""
    gvk = watch.gvk
    names = KindNames("", gvk.group, gvk.version, gvk.kind, plural_of(gvk.kind))
    path = directory / f"{names.plural}.yaml"
    if directory.is_file():
        raise CrdError(f"{directory}: the file has no CRD of the kind {gvk.kind}: add one, or name a directory")
    if path.exists():
        raise CrdError(f"{path}: the file exists without a CRD of the kind {gvk.kind}: rename it, or add the CRD to it")
    above = directory.name == "bases"
    kustomization = (directory.parent if above else directory) / "kustomization.yaml"
    if kustomization.is_file():
        text = done.texts.get(kustomization) or kustomization.read_text(encoding="utf-8")
        item = f"- {directory.name}/{path.name}" if above else f"- {path.name}"
        done.texts[kustomization] = append_item(text, "resources", item, str(kustomization))
    description = str(arguments.entry.get("short_description") or f"A {gvk.kind}.")
    return CrdFile.parse(path, new_definition(names, description))
