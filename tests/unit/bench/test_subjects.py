from pathlib import Path

import pytest
import yaml
from bench.stage import PROJECT
from bench.subjects import POD_SCALER, SUBJECTS, Subject, with_revision
from bench.widgets import DEFINITION

from rolecall.kube.references import ObjectKey

SCALERS = yaml.safe_load(Path(PROJECT, "deploy/crds/podscalers.yaml").read_text())


def test_the_definition_of_podscalers_gets_the_field_and_the_repositorys_own_stays_as_it_is() -> None:
    before = yaml.safe_dump(SCALERS)
    [version] = with_revision(SCALERS)["spec"]["versions"]
    assert set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]) == {
        "count",
        "selector",
        "revision",
    }
    assert yaml.safe_dump(SCALERS) == before


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.title)
def test_pods_made_before_satisfy_the_object_and_belong_to_no_other(subject: Subject) -> None:
    keys = [ObjectKey("bench", name) for name in ("a", "b")]
    pods = [pod["metadata"] for key in keys for pod in subject.pods(key, 2)]
    assert [pod["labels"] for pod in pods] == [{subject.label: name} for name in ("a", "a", "b", "b")]
    assert len({pod["name"] for pod in pods}) == 4


def test_both_subjects_can_have_pods_in_one_namespace() -> None:
    key = ObjectKey("bench", "a")
    names = [pod["metadata"]["name"] for subject in SUBJECTS for pod in subject.pods(key, 2)]
    assert len(set(names)) == 4


def test_the_watches_of_the_comparison_name_the_kinds_of_all_subjects() -> None:
    watches = yaml.safe_load(Path(PROJECT, "bench/content/watches.yaml").read_text())
    kinds = {(watch["group"], watch["version"], watch["kind"]) for watch in watches}
    assert {(gvk.group, gvk.version, gvk.kind) for gvk in (subject.gvk for subject in SUBJECTS)} <= kinds
    assert POD_SCALER.group == SCALERS["spec"]["group"]
    assert DEFINITION["spec"]["names"]["kind"] in {kind for _, _, kind in kinds}
