"""Descriptors, by which a console displays the fields of a kind, from the schema of its CRD."""

import re
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]

CONDITIONS = "urn:alm:descriptor:io.kubernetes.conditions"
POD_COUNT = "urn:alm:descriptor:com.tectonic.ui:podCount"
OF_TYPES = {
    "boolean": "urn:alm:descriptor:com.tectonic.ui:booleanSwitch",
    "integer": "urn:alm:descriptor:com.tectonic.ui:number",
    "string": "urn:alm:descriptor:com.tectonic.ui:text",
}


def spec_descriptors(version: Document) -> list[Document]:
    """Return the descriptors of the spec's fields; the field that sets the scale is a number of pods."""
    scale = version.get("subresources", {}).get("scale", {}).get("specReplicasPath")
    return [_input(name, field, scale) for name, field in _described(version, "spec")]


def status_descriptors(version: Document) -> list[Document]:
    """Return the descriptors of the status fields that have a description, and of the conditions."""
    found = [_descriptor(name, field["description"]) for name, field in _described(version, "status")]
    if "conditions" in _fields(version, "status"):
        conditions = _descriptor("conditions", "The result of the last run, by type.")
        found.append({**conditions, "x-descriptors": [CONDITIONS]})
    return found


def words_of(name: str) -> str:
    """Return a name for readers: ``podScaler`` and ``pod-scaler`` become ``Pod scaler``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", " ", name)
    return words[0].upper() + words[1:].lower()


def _input(name: str, field: Document, scale: str | None) -> Document:
    shown = POD_COUNT if scale == f".spec.{name}" else OF_TYPES.get(field.get("type", ""))
    return {**_descriptor(name, field["description"]), **({"x-descriptors": [shown]} if shown else {})}


def _descriptor(name: str, description: str) -> Document:
    return {"path": name, "displayName": words_of(name), "description": description}


def _described(version: Document, part: str) -> Iterator[tuple[str, Document]]:
    return ((name, field) for name, field in _fields(version, part).items() if "description" in field)


def _fields(version: Document, part: str) -> Document:
    properties = version["schema"]["openAPIV3Schema"].get("properties", {})
    fields: Document = properties.get(part, {}).get("properties", {})
    return fields
