import pytest
import yaml

from rolecall.workbench.bundle.manifests import BundleError, Deployed, Document, read_deployed

NAMESPACE = {"kind": "Namespace", "metadata": {"name": "web-system"}}
ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "web-system"}}
DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "web-system"},
    "spec": {"template": {"spec": {"serviceAccountName": "web"}}},
}


def role(name: str, verb: str, kind: str = "Role") -> Document:
    return {"kind": kind, "metadata": {"name": name, "namespace": "web-system"}, "rules": [{"verbs": [verb]}]}


def binding(name: str, *accounts: str, kind: str = "Role", namespace: str = "web-system") -> Document:
    return {
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account} for account in accounts],
    }


def deployed(*objects: Document) -> Deployed:
    return read_deployed(yaml.safe_dump_all([NAMESPACE, ACCOUNT, DEPLOYMENT, *objects]))


def test_account_has_the_rules_of_all_its_bindings() -> None:
    found = deployed(
        role("reader", "get"), binding("reader", "web"), role("writer", "update"), binding("writer", "web")
    )
    assert found.permissions("RoleBinding") == [
        {"serviceAccountName": "web", "rules": [{"verbs": ["get"]}, {"verbs": ["update"]}]}
    ]
    assert found.permissions("ClusterRoleBinding") == []
    assert found.others() == []


def test_role_binding_of_a_cluster_role_grants_its_rules_in_namespaces() -> None:
    found = deployed(role("reader", "get", kind="ClusterRole"), binding("reader", "web", kind="ClusterRole"))
    assert found.permissions("RoleBinding") == [{"serviceAccountName": "web", "rules": [{"verbs": ["get"]}]}]
    assert found.others() == []


def test_roles_of_people_are_files_of_the_bundle_without_a_namespace() -> None:
    found = deployed(role("viewer", "get", kind="ClusterRole"), role("other", "get"), binding("other", "prometheus"))
    assert found.permissions("RoleBinding") == []
    assert [(each["kind"], each["metadata"]) for each in found.others()] == [
        ("ClusterRole", {"name": "viewer"}),
        ("Role", {"name": "other"}),
        ("RoleBinding", {"name": "other"}),
    ]


@pytest.mark.parametrize(
    ("added", "error"),
    [
        ([binding("view", "web", kind="ClusterRole")], "grants the ClusterRole 'view', which the manifests don't"),
        ([role("one", "get"), binding("one", "web", "prometheus")], "'one' has more subjects than the operator's"),
        ([role("one", "get"), binding("one", "web", namespace="kube-system")], "is in the namespace 'kube-system'"),
        ([{"kind": "StatefulSet", "metadata": {"name": "a"}}], "StatefulSet 'a': OLM doesn't create objects of this"),
        ([{"kind": "Deployment", "metadata": {"name": "b"}}], "have 2 objects of kind 'Deployment'; a bundle takes"),
    ],
)
def test_object_that_a_bundle_cannot_represent_is_rejected(added: list[Document], error: str) -> None:
    with pytest.raises(BundleError, match=error):
        deployed(*added).others()


@pytest.mark.parametrize(
    ("text", "error"),
    [("", "empty: pass the output of"), ("- 1", "an entry without kind and name"), ("a: [", "aren't YAML")],
)
def test_input_that_kustomize_does_not_write_is_rejected(text: str, error: str) -> None:
    with pytest.raises(BundleError, match=error):
        read_deployed(text)
