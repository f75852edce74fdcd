"""Real runs compared with the plan that was made before."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli.main import main
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.plan.differences import findings_of
from rolecall.plan.document import document_of
from rolecall.plan.results import ObjectChange, ObjectPlan, Plan, PlannedWrite
from rolecall.proxy import Exchange
from rolecall.record.document import Surroundings
from rolecall.record.document import document_of as record_document
from tests.unit.plan.plans import STARTED, change, write
from tests.unit.proxy.conftest import DEMO
from tests.unit.record.records import CONFIG_MAPS, exchange, make_record

SECRETS = "/api/v1/namespaces/ns/secrets"


def obj(name: str, **values: Any) -> RawObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, **values}


def plan_file(folder: Path, *writes: PlannedWrite, changes: tuple[ObjectChange, ...] = (), **values: Any) -> Path:
    """Write the plan of the object that records are for."""
    plan = ObjectPlan(DEMO, ObjectKey("ns", "one"), changes, writes, started=STARTED, ended=STARTED + 1, **values)
    path = folder / "plan.json"
    whole = Plan((plan,))
    path.write_text(json.dumps(document_of(whole, findings_of(whole))))
    return path


def record_file(path: Path, *exchanges: Exchange, name: str = "one") -> Path:
    """Write the record of a run of the role foo."""
    record = make_record(*exchanges, name=name)
    path.write_text(record_document(record, Surroundings(watch={"role": "roles/foo"})).text)
    return path


def compare(plan: Path, *records: Path) -> int:
    return main(["record", "compare", "--against", str(plan), *map(str, records)])


def posted(body: RawObject, answer: RawObject | None = None) -> Exchange:
    return exchange("POST", CONFIG_MAPS, body, answer or body, 201)


def test_equal_writes_are_as_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_file(tmp_path, write("POST", CONFIG_MAPS, obj("a"), status=201))
    read = exchange("GET", f"{CONFIG_MAPS}/a", None, obj("a"))
    assert compare(plan, record_file(tmp_path / "1.jsonl", read, posted(obj("a")))) == 0
    assert capsys.readouterr().out == "roles/foo: 1 of 1 objects as planned (100%)\n"


def test_each_other_write_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_file(
        tmp_path,
        write("POST", CONFIG_MAPS, obj("a"), status=201),
        write("POST", CONFIG_MAPS, obj("b"), status=201),
    )
    assert compare(plan, record_file(tmp_path / "1.jsonl", posted(obj("a")), posted(obj("c")))) == 2
    first, planned, happened, total = capsys.readouterr().out.splitlines()
    assert first == "Demo ns/one: 1 of 2 writes as planned"
    assert planned.startswith("  -POST")
    assert '"name": "b"' in planned
    assert happened.startswith("  +POST")
    assert '"name": "c"' in happened
    assert total == "roles/foo: 0 of 1 objects as planned (0%)"


def test_what_every_run_gets_anew_is_no_difference(tmp_path: Path) -> None:
    def made(name: str) -> RawObject:
        return obj(name) | {"metadata": {"name": name, "namespace": "ns", "generateName": "web-", "uid": f"u-{name}"}}

    def refers(name: str, time: str) -> RawObject:
        return obj("refers", data={"to": name, "at": time, "uid": f"u-{name}"})

    template = obj("x") | {"metadata": {"generateName": "web-"}}
    plan = plan_file(
        tmp_path,
        write("POST", CONFIG_MAPS, template, status=201),
        write("POST", CONFIG_MAPS, refers("web-aaaaa", "2026-01-10T12:00:00Z"), status=201),
        changes=(change(None, made("web-aaaaa")),),
    )
    record = make_record()
    now = record.started.isoformat(timespec="seconds")
    happened = (posted(template, made("web-bbbbb")), posted(refers("web-bbbbb", now)))
    assert compare(plan, record_file(tmp_path / "1.jsonl", *happened)) == 0


def test_the_times_of_a_run_that_waited_for_a_process_are_its_own(tmp_path: Path) -> None:
    posted_at = datetime.now(UTC) + timedelta(seconds=60)  # the run itself takes less than a second
    text = posted_at.isoformat(timespec="seconds")
    plan = plan_file(tmp_path, write("POST", CONFIG_MAPS, obj("a", at="2026-01-10T12:00:00Z"), status=201))
    happened = replace(posted(obj("a", at=text)), started=posted_at.timestamp())
    assert compare(plan, record_file(tmp_path / "1.jsonl", happened)) == 0


def test_secrets_are_compared_by_where_they_are(tmp_path: Path) -> None:
    secret = obj("s", stringData={"password": "hunter2-and-more"}) | {"kind": "Secret"}
    copy = obj("copy", data={"url": "u:hunter2-and-more@h"})
    plan = plan_file(
        tmp_path,
        write("POST", SECRETS, secret, status=201),
        write("POST", CONFIG_MAPS, copy, status=201),
    )
    happened = (exchange("POST", SECRETS, secret, secret, 201), posted(copy))
    assert compare(plan, record_file(tmp_path / "1.jsonl", *happened)) == 0
    elsewhere = (exchange("POST", SECRETS, secret, secret, 201), posted(obj("copy", data={"url": "u:@h"})))
    assert compare(plan, record_file(tmp_path / "1.jsonl", *elsewhere)) == 2


def test_a_write_that_was_refused_was_not_planned(tmp_path: Path) -> None:
    plan = plan_file(tmp_path, write("POST", CONFIG_MAPS, obj("a"), status=201))
    refused = exchange("POST", CONFIG_MAPS, obj("a"), {"kind": "Status"}, 403)
    assert compare(plan, record_file(tmp_path / "1.jsonl", refused)) == 2


def test_as_many_records_count_as_the_plan_had_rounds(tmp_path: Path) -> None:
    posts = [write("POST", CONFIG_MAPS, obj(name), status=201) for name in ("a", "b")]
    for number, name in enumerate("abc"):
        record_file(tmp_path / f"{number}.jsonl", posted(obj(name)))
    assert compare(plan_file(tmp_path, *posts, rounds=2), tmp_path) == 0


def test_objects_without_a_record_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_file(tmp_path)
    assert compare(plan, record_file(tmp_path / "1.jsonl", name="other")) == 1
    assert "none of the records is of an object in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a plan"),
        ('{"format": 2, "objects": []}', "has format 2"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(
    tmp_path: Path, text: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    assert compare(tmp_path / "plan.json", record_file(tmp_path / "1.jsonl")) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_a_bad_record_has_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("")
    assert compare(plan_file(tmp_path), tmp_path / "1.jsonl") == 6
