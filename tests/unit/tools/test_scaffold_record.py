"""The recorded run of a new project: names become marks, and the marks the names of any project."""

from pathlib import Path

from tools.scaffold_record.generalise import DOMAIN, KIND, template_of

from rolecall.runner.record.document import document_of
from rolecall.runner.record.reader import read_record
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.events import RunEvent
from rolecall.workbench.project.scaffold import sealed
from tests.unit.runner.record.records import exchange
from tests.unit.runner.record.records import make_record as make

PATH = f"/apis/{KIND.group}.{DOMAIN}/{KIND.version}/{KIND.plural}"


def recorded(tmp_path: Path) -> str:
    """Return the template of a record whose texts have every name, a percent sign and the path of the project."""
    record: RunRecord = make(exchange("GET", PATH, None, {"kind": KIND.kind, "text": "50 % of zyxkind-sample"}))
    place = f"{tmp_path}/project/roles/zyxkind/tasks/main.yml:3"
    record.on_event(RunEvent(name="playbook_on_task_start", task="Write", task_id="task-2", task_path=place))
    record.on_event(RunEvent(name="runner_on_ok", task="Write", task_id="task-2", host="localhost"))
    path = tmp_path / "one.jsonl"
    path.write_text(document_of(record, versions={"content": "sha256:1"}).text)
    return template_of(path, tmp_path / "project")


def test_a_template_has_nothing_of_the_project_that_was_recorded(tmp_path: Path) -> None:
    text = recorded(tmp_path)
    assert not [word for word in ("zyx", "Zyx", "v9beta9", str(tmp_path), 'sha256:1"') if word in text]
    assert '"/apis/%{group}/%{version}/%{plural}"' in text
    assert '"place":"roles/%{name}/tasks/main.yml:3"' in text
    assert "50 %% of %{name}-sample" in text


def test_a_template_becomes_a_whole_record_with_the_names_of_a_project(tmp_path: Path) -> None:
    names = {"group": "shop.example.com", "version": "v1", "kind": "Website", "plural": "websites", "name": "website"}
    text = recorded(tmp_path).replace("%%", "%")
    for mark, name in names.items():
        text = text.replace(f"%{{{mark}}}", name)
    path = tmp_path / "two.jsonl"
    path.write_text(sealed(text))
    record = read_record(path)
    assert record.exchanges[0]["path"] == "/apis/shop.example.com/v1/websites"
    assert record.exchanges[0]["answer"]["json"] == {"kind": "Website", "text": "50 % of website-sample"}
