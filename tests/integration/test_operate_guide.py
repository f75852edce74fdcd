"""The guide to operation, done with a project of ``rolecall init``.

The nodes of the control plane are simulated, so the process of the deployed container, with the permissions of its
account, stands for the pods of the Deployment.
"""

from pathlib import Path

from tests.guides import FILE, Step, guide
from tests.integration.containers import in_shell
from tests.integration.shell import do
from tests.outcomes import check

GUIDE = guide("docs/guides/operate.md")
FILES = dict(FILE.findall(GUIDE.text))
CLUSTER = "operate-guide"
ROLE = "roles/website/tasks/main.yml"
OPERATOR = f"{in_shell(CLUSTER, 'web-system', 'web')} 2> log &"
PROJECT = f"""
rolecall init --domain example.com web
cd web
rolecall create api --group shop --version v1 --kind Website --generate-role
cat > {ROLE} <<'END'
{FILES[ROLE]}END
sed -i 's/resources: \\[configmaps\\]/resources: [configmaps, secrets]/' deploy/rbac/*.yaml
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
