"""The tutorial about a fleet of teams, done word by word, from an empty directory to a restored team.

The operator has the image that the page builds, the command of its Deployment, and the permissions of its account.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, Document
from tests.guides import ShownFile, Step, guide, parts
from tests.integration.shell import clone
from tests.outcomes import Done, check, done
from tests.support.prometheus import evaluate, find_promtool, samples, series

PAGE = guide("docs/tutorials/team.md")
MARK = "--- ended with "
INIT = "rolecall init --domain example.com teams"
FIRST_IMAGE, SECOND, THIRD = (
    f"make image IMG=registry.example/teams:{version}.0.0 RUNNER=registry.example/rolecall-runner:0.1.0"
    for version in (1, 2, 3)
)
EDIT = """kubectl patch team t03 --type=merge --patch '{"spec": {"isolated": false}}'"""
METRICS = 'kubectl get --raw "/api/v1/namespaces/teams-system/pods/$pod:8443/proxy/metrics"'
FAILING = f"{METRICS} | grep '^ansible_operator_failing_objects'"
SERVICES = "kubectl -n teams-system get services -l app.kubernetes.io/name=teams -o json"
KINDS = "namespaces,resourcequotas,networkpolicies,rolebindings,secrets"
GROUP = "platform.example.com/group"
GVK = "platform.example.com/v1, Kind=Team"
ALERT = "OperatorObjectsFail"
FIRED = {
    "exp_labels": {"severity": "warning", "namespace": "teams-system", "GVK": GVK},
    "exp_annotations": {
        "summary": "Objects of a kind can't be reconciled.",
        "description": f"For 15 minutes, the last run of 10 objects has failed ({GVK}). "
        "The condition Failure of each object names the task and the reason.",
    },
}
TEAMS = [f"t{number:02}" for number in range(1, 31)]
OWN_OF_THE_SERVER = ("resourceVersion", "managedFields", "generation")
MAX_SECONDS = 1700.0
"""Less than the time limit of pytest, so that a failure shows what was printed."""

pytestmark = pytest.mark.timeout(2400)  # includes the images, if a test here is the first


class Session:
    """One shell in which the commands of the page run where the API server can be reached."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._state = directory / "state"
        self._printed = directory / "printed"
        self._files = 0

    def do(self, wanted: Sequence[ShownFile | Step], hidden: Mapping[str, str]) -> list[Done]:
        """Write the files and run the commands; ``hidden`` has what runs before a command. Stop at a failure."""
        left_out = PAGE.left_out
        script = "\n".join(self._lines(wanted, hidden))
        steps = [each for each in wanted if isinstance(each, Step) and each.command not in left_out]
        printed = self._run(script)
        parts_of_it = re.split(rf"^{MARK}(\d+) after \d+ s\n", printed, flags=re.MULTILINE)
        codes = [*map(int, parts_of_it[1::2]), 124]
        return [done(step, code, lines) for step, lines, code in zip(steps, parts_of_it[::2], codes, strict=False)]

    def _lines(self, wanted: Sequence[ShownFile | Step], hidden: Mapping[str, str]) -> Iterator[str]:
        for each in wanted:
            if isinstance(each, ShownFile):
                yield self._writing(each)
            elif each.command.startswith("docker push registry.example/teams:"):
                yield f"{shlex.join(self._cluster.environment.load)} {each.command.split()[-1]} || exit"
            elif each.command not in PAGE.left_out:
                yield hidden.get(each.command, ":")
                yield f"since=$SECONDS\n{each.command}"
                yield f'code=$?; echo; echo "{MARK}$code after $((SECONDS - since)) s"'
                yield f"[ $code {'!=' if each.is_refused else '='} 0 ] || exit"

    def _writing(self, file: ShownFile) -> str:
        """Return the commands that write a file as the reader does, in the directory of the project."""
        self._files += 1
        content = self._directory / f"file-{self._files}"
        content.write_text(file.content)
        path = shlex.quote(file.path)
        return f"mkdir -p $(dirname {path}); cat {content} {'>>' if file.is_continued else '>'} {path}"

    def _run(self, script: str) -> str:
        source = self._directory / "page.sh"
        source.write_text(script)
        of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KUBECONFIG")
        environment = {name: value for name, value in os.environ.items() if name not in of_make}
        environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "ROLECALL_STATE_DIR": str(self._state),
        }
        command = [*self._cluster.environment.run_in, "bash", str(source)]
        with self._printed.open("w") as output:
            shell = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=clone(self._directory),
                env=environment,
                start_new_session=True,
            )
            with suppress(subprocess.TimeoutExpired):
                shell.wait(MAX_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait()
        stop = [*self._cluster.environment.run_in, sys.executable, "-m", "rolecall", "cluster", "stop", "--all"]
        subprocess.run(stop, env=environment, check=False)
        return self._printed.read_text()


def contents(file: Path) -> dict[str, Document]:
    """Return the objects of the teams in a dump, by kind, namespace, and name, without what the API server writes."""
    found = {}
    for each in json.loads(file.read_text())["items"]:
        metadata = {name: value for name, value in each["metadata"].items() if name not in OWN_OF_THE_SERVER}
        name = f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        if re.search(r"[ /]team-t\d\d\b", name):
            found[name] = {**each, "metadata": metadata, "status": None}
    return found


def differences(one: object, other: object, path: str = "") -> Iterator[str]:
    """Yield the paths of the values that differ, with the new values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif one != other:
        yield f"{path}: {other}"


@dataclass(frozen=True, slots=True)
class Finished:
    """What the page has left: its commands' results, the project, dumps of objects, and metrics at the step about them.

    ``services`` has the Services of the operator, by which Prometheus finds the metrics.
    """

    done: Sequence[Done]
    project: Path
    dumps: Mapping[str, Path]
    metrics: Path
    services: Path


@pytest.fixture(scope="module")
def finished(cluster: Cluster, runner_image: str, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Do what the page says."""
    assert runner_image
    directory = tmp_path_factory.mktemp("team")
    metrics, services = directory / "metrics", directory / "services.json"
    dumps = {name: directory / f"{name}.json" for name in ("first", "second", "back")}
    dump = {name: f"kubectl get {KINDS} -A -o json >{file}" for name, file in dumps.items()}
    hidden = {
        INIT: f"mkdir {directory}/empty; cd {directory}/empty",
        FIRST_IMAGE: f"export KUBECONFIG={cluster.environment.kubeconfig}",
        SECOND: dump["first"],
        THIRD: dump["second"],
        FAILING: f"{METRICS} >{metrics}; {SERVICES} >{services}",
        EDIT: dump["back"],
    }
    results = Session(cluster, directory).do(list(parts(PAGE.text)), hidden)
    return Finished(results, directory / "empty/teams", dumps, metrics, services)


def test_every_command_of_the_page_ends_and_prints_as_the_page_says(finished: Finished) -> None:
    check(PAGE, finished.done)

    first, second, back = (contents(file) for file in finished.dumps.values())
    assert {name: list(differences(first[name], second[name])) for name in first if first[name] != second[name]} == {
        f"ResourceQuota team-{name}/team": [".spec.hard.requests.storage: 50Gi"] for name in TEAMS
    }, "the plan of version 2 has announced one line for each Team, and nothing else"
    assert first.keys() == second.keys() == back.keys()
    assert {name: list(differences(second[name], back[name])) for name in back if second[name] != back[name]} == {
        f"Namespace /team-{name}": [f".metadata.annotations.{GROUP}: developers"] for name in TEAMS if int(name[1:]) % 3
    }, "version 3 has left the annotations that the page names"


def test_the_alert_of_the_page_fires_after_15_minutes_and_no_other(finished: Finished, tmp_path: Path) -> None:
    """Prometheus's promtool evaluates the project's alerts, for metrics that stay as they were at that step."""
    rules = yaml.safe_load((finished.project / "deploy/components/monitoring/alerts.yaml").read_text())["spec"]
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert ALERT in names
    assert f"`{ALERT}`" in PAGE.text
    (service,) = json.loads(finished.services.read_text())["items"]
    target = {"job": service["metadata"]["name"], "namespace": service["metadata"]["namespace"], "pod": "leader"}
    metrics = samples(finished.metrics.read_text())
    own = [name for name in metrics if name.startswith(("ansible_operator_", "leader_election_"))]
    test = {
        "input_series": [series(name, target, f"{metrics[name]}+0x15") for name in own],
        "alert_rule_test": [
            *({"eval_time": "14m", "alertname": name, "exp_alerts": []} for name in names),
            *(
                {"eval_time": "15m", "alertname": name, "exp_alerts": [FIRED] if name == ALERT else []}
                for name in names
            ),
        ],
    }
    evaluate(find_promtool(), tmp_path, rules, test)
