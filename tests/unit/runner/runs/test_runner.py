from pathlib import Path

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs.process import RunSpec, new_ident
from rolecall.runner.runs.workspace import Workspace

WORKSPACE = Workspace(Path("/w"), GVK("a", "v1", "A"), ObjectKey("n", "x"))


def test_idents_are_decimal_numbers_of_63_bits() -> None:
    idents = {new_ident() for _ in range(100)}
    assert len(idents) == 100
    assert all(0 <= int(ident) < 2**63 for ident in idents)


def test_secrets_are_not_in_the_representation_of_a_spec() -> None:
    spec = RunSpec("1", WORKSPACE, RoleContent(Path("/r/a")), secret_environment={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(spec)
