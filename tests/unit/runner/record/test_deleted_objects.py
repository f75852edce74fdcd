"""A record keeps the manifests of the objects that prune has deleted, and ``rolecall record show`` prints them."""

import base64
import json
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.kube.references import RawObject
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.record.document import document_of
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record

PLANTED = "planted-Pa55word"
ENCODED = base64.b64encode(PLANTED.encode()).decode()


def live(kind: str, **content: object) -> RawObject:
    """Return an object as it was read before its deletion."""
    annotations = {"rolecall.dev/made-for": f"uid-of-one:/{kind}:ns/old", "note": "x"}
    metadata: RawObject = {"name": "old", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2}
    metadata |= {"creationTimestamp": "2026-11-22T10:00:00Z", "managedFields": [{}], "annotations": annotations}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}


def written(path: Path, *manifests: RawObject, secret: str = "", **texts: tuple[str, ...]) -> str:
    """Write the record of a run that has deleted objects, and return its text."""
    record = make_record(exchange("GET", CONFIG_MAPS, None, config_map(secret or "1")))
    record.ending = replace(record.ending, pruning=Pruning(texts=texts, manifests=manifests))
    text = document_of(record, secrets=[secret] if secret else ()).text
    path.write_text(text)
    return text


def manifests_in(text: str) -> list[RawObject]:
    """Return the manifests in the last line."""
    found: list[RawObject] = json.loads(text.splitlines()[-1])["prune"]["manifests"]
    return found


def test_manifest_has_neither_status_nor_mark_nor_fields_of_the_server(tmp_path: Path) -> None:
    text = written(tmp_path / "one.jsonl", live("Service", spec={"ports": [{"port": 80}]}, status={"loadBalancer": {}}))
    assert manifests_in(text) == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "old", "namespace": "ns", "annotations": {"note": "x"}},
            "spec": {"ports": [{"port": 80}]},
        }
    ]


def test_values_of_a_deleted_secret_are_masked_everywhere() -> None:
    """Also where the run has written a copy of the value, which is the only way in which it was known."""
    record = make_record(exchange("POST", CONFIG_MAPS, config_map(PLANTED), config_map(PLANTED), 201))
    record.ending = replace(record.ending, pruning=Pruning(manifests=(live("Secret", data={"password": ENCODED}),)))
    text = document_of(record).text
    assert PLANTED not in text
    assert ENCODED not in text
    [manifest] = manifests_in(text)
    assert (manifest["kind"], list(manifest["data"])) == ("Secret", ["password"])


@pytest.mark.parametrize("secret", ["manifests", "deleted", "Service"])
def test_secret_equal_to_a_word_of_a_manifest_does_not_break_the_record(tmp_path: Path, secret: str) -> None:
    text = written(tmp_path / "one.jsonl", live("Service"), secret=secret, deleted=("Service ns/old",))
    [manifest] = manifests_in(text)
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Service", "old")
    assert json.loads(text.splitlines()[-1])["prune"]["deleted"]


def test_run_without_a_deletion_has_no_manifests(tmp_path: Path) -> None:
    text = written(tmp_path / "one.jsonl", reasons=("why",), obsolete=())
    assert json.loads(text.splitlines()[-1])["prune"] == {"reasons": ["why"]}


def test_record_show_prints_what_was_deleted_as_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.jsonl"
    objects = live("ConfigMap", data={"a": "1"}), live("Service", spec={})
    text = written(path, *objects, deleted=("ConfigMap ns/old", "Service ns/old"), reasons=("another one waits",))
    assert main(["record", "show", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("  deleted:")
    assert lines[start : start + 3] == ["  deleted:", "    ConfigMap ns/old", "    Service ns/old"]
    assert lines[lines.index("  prune:") + 1] == "    another one waits"
    printed = textwrap.dedent("\n".join(lines[lines.index("  manifests of the deleted objects:") + 1 :]))
    assert list(yaml.safe_load_all(printed)) == manifests_in(text)


def test_record_show_of_a_run_that_pruned_nothing_has_no_such_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.jsonl"
    written(path)
    assert main(["record", "show", str(path)]) == 0
    assert "deleted" not in capsys.readouterr().out
