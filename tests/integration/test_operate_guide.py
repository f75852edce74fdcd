"""The guide to operation, done with a project of ``rolecall init``.

The nodes of the control plane are simulated, so an operator next to it stands for the pods of the Deployment.
"""

from pathlib import Path

from tests.guides import FILE, Step, guide
from tests.integration.shell import do
from tests.outcomes import check

GUIDE = guide("docs/guides/operate.md")
FILES = dict(FILE.findall(GUIDE.text))
CLUSTER = "operate-guide"
ROLE = "roles/website/tasks/main.yml"
OPERATOR = """
rolecall run --zap-encoder json --leader-elect --leader-election-id web --leader-election-namespace web-system 2> log &
"""
PROJECT = f"""
rolecall init --domain example.com web
cd web
rolecall create api --group shop --version v1 --kind Website --generate-role
cat > {ROLE} <<'END'
{FILES[ROLE]}END
rolecall cluster start --name {CLUSTER}
export KUBECONFIG=$(rolecall cluster kubeconfig --name {CLUSTER})
kubectl apply --server-side -k deploy
{OPERATOR}
kubectl apply -k deploy/samples
kubectl -n website-sample wait website/website-sample --for=condition=Ready --timeout=300s
"""


def test_commands_of_the_guide_print_the_shown_output(tmp_path: Path) -> None:
    start = Step("true")
    before = {
        start.command: PROJECT,
        "kubectl -n web-system scale deployment/web --replicas=0": "kill %1; wait %1",
        "kubectl -n web-system scale deployment/web --replicas=2": OPERATOR,
    }
    check(GUIDE, do([start, *GUIDE.steps], tmp_path, tmp_path / "state", before)[1:])
