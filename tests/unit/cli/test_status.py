"""``rolecall status`` on the command line: its table, its document, its problems, and its exit codes."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli.main import main
from rolecall.cli.status import age_text, lines_of
from rolecall.kube.client import Client
from rolecall.kube.errors import UnreachableError
from rolecall.kube.failures import ObjectState, State, failures_of, groups_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.watches import WatchedKind
from rolecall.runner.fleet import Fleet, FleetObject, Problem
from rolecall.runner.reconcile.proposals import Proposal
from tests.unit.runner.reconcile.test_proposals import entry

TEAM = GVK("example.com", "v1", "Team")
SITE = GVK("example.com", "v1", "Site")
NOW = datetime(2026, 11, 28, 8, 3, tzinfo=UTC).timestamp()
FAILED_AT = NOW - 21 * 60
MESSAGE = (
    "Task \"Validating arguments against arg spec 'main' - Set up a team\": Validation of arguments failed:\n"
    "quota.storage. Supported parameters include: cpu, memory."
)


def team(name: str, state: State = State.READY, message: str = "", **found: Any) -> FleetObject:
    key = ObjectKey(found.pop("namespace", ""), name)
    gvk = found.pop("gvk", TEAM)
    since = FAILED_AT if state is State.FAILING else NOW - 7200
    return FleetObject(ObjectState(gvk, key, state, "", message, since), NOW - 3 * 86400, **found)


def fleet_of(*objects: FleetObject, problems: tuple[Problem, ...] = ()) -> Fleet:
    totals = {gvk: sum(each.state.gvk == gvk for each in objects) for gvk in (TEAM, SITE)}
    groups = groups_of(failures_of(each.state for each in objects), totals)
    return Fleet((TEAM, SITE), objects, tuple(groups), problems)


FLEET = fleet_of(
    *(team(f"team-{number:02}", State.FAILING, MESSAGE) for number in range(33)),
    team("audit", next_run=NOW + 3600 * 8),
    team("docs", State.PAUSED),
)


def text_of(fleet: Fleet, width: int = 0) -> list[str]:
    return [line.text for line in lines_of(fleet, NOW, UTC, width)]


def test_equal_failures_are_a_group_above_the_table() -> None:
    lines = text_of(FLEET, 80)
    assert lines[:8] == [
        "35 objects: 33 failing, 1 paused, 1 ready",
        "",
        "33 of 35 Teams fail since 07:42: Validation of arguments failed: quota.storage",
        "  team-00, team-01, team-02 and 30 more",
        "",
        "OBJECT        STATE    SINCE  AGE  NEXT RUN  MESSAGE",
        "Team/team-00  failing  21m    3d   -         Validation of arguments failed: qu…",
        "Team/team-01  failing  21m    3d   -         Validation of arguments failed: qu…",
    ]
    assert lines[-2:] == [
        "Team/audit    ready    2h     3d   8h",
        "Team/docs     paused   2h     3d   -",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    fleet = fleet_of(
        team("a" * 63, State.FAILING, "word " * 80, namespace="n" * 63),
        team("b" * 200, State.NOT_READY, "x" * 500, namespace="other", gvk=SITE, next_run=NOW - 60),
    )
    lines = text_of(fleet, width)
    assert max(map(len, lines)) <= width
    assert max(map(len, text_of(fleet))) > 400


def test_control_characters_of_a_message_are_escaped() -> None:
    assert "\x1b" not in "\n".join(text_of(fleet_of(team("one", State.FAILING, "a\x1b[2Jb"))))


def test_overdue_run_is_shown() -> None:
    assert "overdue" in text_of(fleet_of(team("one", next_run=NOW - 60)))[-1]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")]
)
def test_age_has_one_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


class _Cluster:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


Asked = list[tuple[list[GVK], Sequence[str], bool]]
Reads = Callable[[Fleet | Exception], Asked]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project as the working directory, whose roles don't exist."""
    monkeypatch.delenv("WATCH_NAMESPACE", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    watches = [{"group": "example.com", "version": "v1", "kind": kind, "role": "absent"} for kind in ("Team", "Site")]
    (tmp_path / "watches.yaml").write_text(json.dumps(watches))
    return tmp_path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Let the cluster have these objects, or fail; return the kinds and namespaces that were read."""

    def prepare(found: Fleet | Exception) -> Asked:
        asked: Asked = []

        async def connect(_: str | None) -> _Cluster:
            if isinstance(found, Exception):
                raise found
            return _Cluster()

        async def read(_: object, kinds: list[WatchedKind], names: Sequence[str], __: float, **options: bool) -> Fleet:
            asked.append(([kind.gvk for kind in kinds], names, options["only_operated"]))
            assert isinstance(found, Fleet)
            return found

        async def served(_: object) -> tuple[WatchedKind, ...]:
            return (WatchedKind(TEAM),)

        monkeypatch.setattr(Client, "connect", connect)
        monkeypatch.setattr("rolecall.runner.fleet.read_fleet", read)
        monkeypatch.setattr("rolecall.runner.fleet.served_kinds", served)
        return asked

    return prepare


def test_failures_are_no_error_of_the_command(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    asked = reads(FLEET)
    assert main(["status"]) == 0
    assert asked == [([TEAM, SITE], (), False)]
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == ("35 objects: 33 failing, 1 paused, 1 ready", "")


def test_kind_and_namespace_select_objects(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reads(FLEET)
    monkeypatch.setenv("WATCH_NAMESPACE", "a,b")
    assert main(["status", "--kind", "sites"]) == 0
    assert main(["status", "--kind", "Site", "--kind", "team", "-n", "c"]) == 0
    assert asked == [([SITE], ("a", "b"), False), ([TEAM, SITE], ("c",), False)]


def test_unknown_kind_is_an_error(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(FLEET)
    assert main(["status", "--kind", "Cart"]) == 1
    assert capsys.readouterr().err == "rolecall status: --kind Cart: watches.yaml has Site, Team\n"


def test_kinds_of_the_cluster_are_shown_without_a_watches_file(reads: Reads, project: Path) -> None:
    (project / "watches.yaml").unlink()
    asked = reads(FLEET)
    assert main(["status"]) == 0
    assert main(["status", "--kind", "Team"]) == 0
    assert asked == [([TEAM], (), True), ([TEAM], (), False)]


def test_missing_watches_file_that_was_named_is_an_error(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(FLEET)
    assert main(["status", "--watches-file", "absent.yaml"]) == 1
    assert "absent.yaml: cannot be read" in capsys.readouterr().err


def test_unreadable_kind_is_reported_once_and_the_others_are_shown(
    reads: Reads, capsys: pytest.CaptureFixture[str]
) -> None:
    reads(fleet_of(team("audit"), problems=(Problem(SITE, "sites is forbidden", is_forbidden=True),)))
    assert main(["status"]) == 1
    out, err = capsys.readouterr()
    assert "Team/audit" in out
    assert err.splitlines() == [
        "rolecall status: can't list Site (example.com/v1): sites is forbidden",
        "rolecall status: with permissions in one namespace only, use --namespace NAMESPACE",
    ]


def test_unreadable_kinds_beyond_ten_are_counted(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(fleet_of(problems=tuple(Problem(SITE, "forbidden") for _ in range(12))))
    assert main(["status"]) == 1
    *first, last = capsys.readouterr().err.splitlines()
    assert (len(first), last) == (10, "rolecall status: can't list 2 more kinds, see --output json")


def test_unreachable_cluster_is_one_line(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(UnreachableError("connection refused"))
    assert main(["status"]) == 1
    assert capsys.readouterr().err == "rolecall status: connection refused\n"


def test_empty_fleet_is_reported_with_its_kinds(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(fleet_of())
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "No objects of Team, Site\n"


def test_json_has_whole_messages(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(FLEET)
    assert main(["status", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [group] = document["groups"]
    assert (group["kind"], group["failing"], group["total"], len(group["objects"])) == ("Team", 33, 35, 33)
    first, *_, audit, _ = document["objects"]
    assert (first["message"], first["since"], first["nextRun"]) == (MESSAGE, "2026-11-28T07:42:00Z", None)
    assert (audit["state"], audit["nextRun"]) == ("ready", "2026-11-28T16:03:00Z")


COMMAND = "kubectl annotate --overwrite team.example.com one -n shop rolecall.dev/confirm-prune=0123456789abcdef"


def proposing(name: str, *names: str) -> FleetObject:
    """Return an object whose role no longer names these Services."""
    objects = tuple(entry(each) for each in names)
    return team(name, namespace="shop", proposal=Proposal(objects, "0123456789abcdef"))


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        ("a", "1 object: Service ns/a"),
        ("abc", "3 objects: Service ns/a, Service ns/b, Service ns/c"),
        ("abcde", "5 objects: Service ns/a, Service ns/b, Service ns/c and 2 more"),
    ],
)
def test_proposed_deletions_are_below_the_table_with_the_command(names: str, listed: str) -> None:
    *_, heading, first, command = text_of(fleet_of(proposing("one", *names), team("two")))
    assert heading == "1 object waits for a person to confirm deletions:"
    assert first == f"Team shop/one no longer needs {listed}"
    assert command == f"  {COMMAND}"


def test_command_is_whole_in_a_narrow_terminal() -> None:
    assert text_of(fleet_of(proposing("one", *"abcdef")), 40)[-1] == f"  {COMMAND}"


def test_only_some_proposals_are_shown_as_text() -> None:
    lines = text_of(fleet_of(*(proposing(f"one-{number}", "a") for number in range(12))))
    assert lines[-1] == "and 2 more, see --output json"
    assert sum("kubectl annotate" in line for line in lines) == 10


def test_forged_names_in_a_proposal_are_escaped() -> None:
    assert "\x1b" not in "\n".join(text_of(fleet_of(proposing("one", "a\x1b[2Jb"))))


def test_json_has_all_proposed_objects_and_the_command(reads: Reads, capsys: pytest.CaptureFixture[str]) -> None:
    reads(fleet_of(proposing("one", *"abcde"), team("two")))
    assert main(["status", "-o", "json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["objects"]
    assert two["proposal"] is None
    assert (one["proposal"]["confirm"], one["proposal"]["command"]) == ("0123456789abcdef", COMMAND)
    first, *others = one["proposal"]["objects"]
    assert first == {"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "a"}
    assert len(others) == 4
