"""The shape of a ClusterServiceVersion and of a scorecard's configuration: the fields that our bundle uses, no others.

So a misspelt or misplaced field is found too. The names and types are those of OLM's own definition.
"""

from typing import Any

Document = dict[str, Any]


def shaped(required: dict[str, Any], **optional: Any) -> Document:
    """Return the schema of an object with these fields and no others; "_" in an optional name stands for "-"."""
    fields = required | {name.replace("_", "-"): shape for name, shape in optional.items()}
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def many(items: Document, least: int = 0) -> Document:
    """Return the schema of a list."""
    return {"type": "array", "items": items, "minItems": least}


TEXT: Document = {"type": "string", "minLength": 1}
ANY: Document = {"type": "object"}
TEXTS = many(TEXT, 1)
NAMED_TEXTS: Document = {"type": "object", "additionalProperties": TEXT}
DESCRIPTOR = shaped({"path": TEXT, "displayName": TEXT, "description": TEXT}, x_descriptors=TEXTS)
OWNED = shaped(
    {
        "name": TEXT,
        "displayName": TEXT,
        "description": TEXT,
        "kind": TEXT,
        "version": TEXT,
        "resources": many(shaped({"kind": TEXT, "name": TEXT, "version": TEXT}), 1),
    },
    specDescriptors=many(DESCRIPTOR),
    statusDescriptors=many(DESCRIPTOR),
)
RULE = shaped({"apiGroups": many({"type": "string"}, 1), "resources": TEXTS, "verbs": TEXTS}, resourceNames=TEXTS)
PERMISSIONS = many(shaped({"serviceAccountName": TEXT, "rules": many(RULE, 1)}))
DEPLOYMENT = shaped(
    {"name": TEXT, "spec": shaped({"selector": ANY, "template": ANY}, replicas={"type": "integer"})}, label=ANY
)
STRATEGY = shaped({"clusterPermissions": PERMISSIONS, "permissions": PERMISSIONS, "deployments": many(DEPLOYMENT, 1)})
SPEC = shaped(
    {
        "displayName": TEXT,
        "description": TEXT,
        "version": TEXT,
        "minKubeVersion": TEXT,
        "maturity": TEXT,
        "keywords": TEXTS,
        "provider": shaped({"name": TEXT}, url=TEXT),
        "links": many(shaped({"name": TEXT, "url": TEXT}), 1),
        "icon": {**many(shaped({"base64data": TEXT, "mediatype": TEXT}), 1), "maxItems": 1},
        "installModes": many(shaped({"type": TEXT, "supported": {"type": "boolean"}}), 1),
        "customresourcedefinitions": shaped({"owned": many(OWNED, 1)}),
        "install": shaped({"strategy": {"const": "deployment"}, "spec": STRATEGY}),
        "relatedImages": many(shaped({"name": TEXT, "image": TEXT}), 1),
    }
)
SERVICE_VERSION = shaped(
    {
        "apiVersion": {"const": "operators.coreos.com/v1alpha1"},
        "kind": {"const": "ClusterServiceVersion"},
        "metadata": shaped({"name": TEXT, "labels": NAMED_TEXTS, "annotations": NAMED_TEXTS}),
        "spec": SPEC,
    }
)
SCORECARD_TEST = shaped({"image": TEXT, "entrypoint": TEXTS, "labels": shaped({"suite": TEXT, "test": TEXT})})
SCORECARD = shaped(
    {
        "apiVersion": {"const": "scorecard.operatorframework.io/v1alpha3"},
        "kind": {"const": "Configuration"},
        "metadata": shaped({"name": {"const": "config"}}),
        "stages": many(shaped({"tests": many(SCORECARD_TEST, 1)}, parallel={"type": "boolean"}), 1),
    }
)
