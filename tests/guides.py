"""The pages of the documentation, each with the tests that execute its commands.

A page's commands are the lines after a prompt in its console blocks. The tests of the page execute each of them, unless
it is a line of the Makefile that ``make test-all`` executes, or is listed here with the reason why no test executes it.
``tests/unit/docs/test_commands_are_done.py`` compares this list with the pages.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[1]
OF_SERIES = "the tests build the newest and the oldest series"
OF_MATRIX = "make test-matrix runs the test in an environment with this ansible-core"
OF_DEPLOYMENT = "tests/integration/test_deploy.py does it with its own image"
OF_IMAGES = "tests/e2e/test_generated_project.py builds the images, and loads them into a node"
OF_RECORDS = "needs pods that run; tests/e2e/test_generated_project.py does it"
RECORDS_IN_A_CLUSTER = (
    "make deploy IMG=registry.example/web:0.1.0 COMPONENTS=records",
    "pod=$(kubectl -n web-system get lease web -o jsonpath='{.spec.holderIdentity}' | sed 's/_[^_]*$//')",
    "kubectl -n web-system exec $pod -- rolecall record list /records",
    "record=$(kubectl -n web-system exec $pod -- sh -c 'ls /records/*.failed.jsonl | tail -n 1')",
    "kubectl -n web-system exec $pod -- cat $record >failure.jsonl",
)
OF_LOGS = "needs pods that run; operators of the integration tests are processes"
OF_PODS = "needs pods that run, and runs until it is interrupted"
OF_OLM = dict.fromkeys(
    re.findall(
        r"^\$ ((?:docker|kubectl|mkdir|opm|operator-sdk|make uninstall).*)$",
        (PROJECT / "docs/guides/olm.md").read_text(),
        re.MULTILINE,
    ),
    "needs OLM, its tools, and a registry; the page lists what was tested by hand",
)
REMOVE_OBSERVED_GENERATION = (
    "kubectl get memcacheds -o name | xargs -I NAME kubectl patch NAME --subresource=status --type=merge "
    """--patch='{"status": {"observedGeneration": null}}'"""
)
INTEGRATION = "tests/integration/test_guides.py"
FILE = re.compile(r'^```yaml title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PART = re.compile(r'^```\w+(?: title="([^",]+)(, continued)?")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page and the lines that it shows for it."""

    command: str
    shown: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Return whether the page shows that the command fails."""
        return any(re.search(r"is invalid|^rolecall \w+: |^\[ERROR\]|^Error from server", line) for line in self.shown)


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file that a page shows with its name: its content, or what the reader adds to its end."""

    path: str
    content: str
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class Guide:
    """A page, the file with its test, and the commands that this test skips: each has a target of make, or a reason."""

    page: str
    test: str
    by_make: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the page."""
        return (PROJECT / self.page).read_text()

    @property
    def steps(self) -> list[Step]:
        """The steps that the test of the page runs, in the page's order."""
        return [step for step in steps(self.text) if step.command not in {*self.by_make, *self.left_out}]


TUTORIALS = ("podscaler", "hikawa", "foo", "podcount")
STOP = {"rolecall cluster stop --name tutorial": "the tests of the next tutorial use the same control plane"}
GUIDES = (
    Guide(
        "README.md",
        INTEGRATION,
        left_out={
            "git clone URL rolecall && cd rolecall": "the test starts in a clone",
            "make test": "make test-all, of which the test is a part, runs everything that it runs",
        },
    ),
    Guide(
        "CONTRIBUTING.md",
        INTEGRATION,
        by_make={"make unit": "test-all"},
        left_out={".venv/bin/pytest tests/integration/test_foo.py --timeout 300": "make integration does this file"},
    ),
    Guide(
        "docs/guides/install.md",
        "tests/release/test_release.py",
        left_out={
            "ansible-galaxy collection install -r requirements.yml": "needs Ansible Galaxy; the test has a collection"
        },
    ),
    Guide("docs/guides/write-your-own-operator.md", "tests/integration/test_guide.py"),
    Guide(
        "docs/guides/first-operator.md",
        "tests/integration/test_scaffold.py",
        left_out=dict.fromkeys(
            (
                "make image IMG=registry.example/rolecall-runner:0.1.0 TARGET=runner",
                "docker push registry.example/rolecall-runner:0.1.0",
                "make image IMG=registry.example/web:0.1.0 RUNNER=registry.example/rolecall-runner:0.1.0",
                "docker push registry.example/web:0.1.0",
            ),
            OF_IMAGES,
        ),
    ),
    Guide(
        "docs/guides/migrate.md",
        "tests/integration/test_migrate_guide.py",
        left_out={
            "UV_PROJECT_ENVIRONMENT=.venv-2.18 uv sync --locked --group core-2-18 --python 3.12": OF_MATRIX,
            "source .venv-2.18/bin/activate": OF_MATRIX,
            REMOVE_OBSERVED_GENERATION: "a test of its own runs it for objects that another program reconciles",
        },
    ),
    *(Guide(f"docs/tutorials/{name}.md", INTEGRATION, left_out=STOP) for name in TUTORIALS[:-1]),
    Guide(f"docs/tutorials/{TUTORIALS[-1]}.md", INTEGRATION),
    Guide("docs/guides/local-runs.md", INTEGRATION),
    Guide("docs/guides/prune.md", INTEGRATION),
    Guide("docs/guides/embedded-control-plane.md", INTEGRATION),
    Guide(
        "docs/guides/molecule.md",
        INTEGRATION,
        by_make={
            "molecule test": "molecule",
            "molecule test -s local": "molecule",
            "rolecall cluster exec --name molecule-cluster -- molecule test -s cluster": "molecule",
        },
    ),
    Guide("docs/tutorials/deploy-samples.md", "tests/e2e/test_operator.py"),
    Guide(
        "docs/tutorials/team.md",
        "tests/e2e/test_team_tutorial.py",
        left_out={
            "make image IMG=registry.example/rolecall-runner:0.1.0 TARGET=runner": "a fixture of the tests builds it",
            "docker push registry.example/rolecall-runner:0.1.0": "needs a registry; the builds find the image locally",
            **{
                f"docker push registry.example/teams:{version}.0.0": "needs a registry; the test loads it into the node"
                for version in (1, 2, 3)
            },
        },
    ),
    Guide(
        "docs/guides/deploy.md",
        "tests/integration/test_deploy_guide.py",
        left_out={
            command: OF_IMAGES
            for tag in ("0.1.0", "0.2.0")
            for command in (
                f"make image IMG=registry.example/web:{tag} RUNNER=registry.example/rolecall-runner:0.1.0",
                f"docker push registry.example/web:{tag}",
            )
        },
    ),
    Guide("docs/guides/least-privilege.md", "tests/integration/test_least_privilege_guide.py"),
    Guide("docs/guides/operate.md", "tests/integration/test_operate_guide.py"),
    Guide("docs/guides/update.md", "tests/integration/test_update_guide.py"),
    Guide("docs/guides/olm.md", "tests/integration/test_olm.py", left_out=OF_OLM),
    Guide(
        "docs/guides/image.md",
        "tests/e2e/conftest.py",
        left_out={
            "docker push registry.example/rolecall:0.1.0": "needs a registry; the tests load the image into a node",
            "make image IMG=registry.example/rolecall-runner:0.1.0-core2.19 TARGET=runner ANSIBLE_CORE=2.19": OF_SERIES,
            "BASE=registry.access.redhat.com/ubi9/python-312 make image"
            " IMG=registry.example/rolecall-drop-in:0.1.0 TARGET=drop-in": "needs the registry of Red Hat",
        },
    ),
    Guide(
        "docs/guides/dashboard.md",
        "tests/integration/test_dashboard.py",
        left_out={
            "make deploy IMG=registry.example/web:0.1.0 COMPONENTS=dashboard": OF_DEPLOYMENT,
            RECORDS_IN_A_CLUSTER[1]: OF_PODS,
            "kubectl -n web-system port-forward pod/$pod 8090": OF_PODS,
        },
    ),
    Guide(
        "docs/guides/replay.md",
        "tests/integration/test_replay_guide.py",
        left_out=dict.fromkeys(RECORDS_IN_A_CLUSTER, OF_RECORDS),
    ),
    Guide(
        "docs/guides/troubleshooting.md",
        "tests/integration/test_troubleshooting_guide.py",
        left_out=dict.fromkeys(
            (
                "kubectl -n web-system logs --selector app.kubernetes.io/name=web --prefix --tail 50",
                """kubectl -n web-system logs deployment/web | grep '"Reconcile started"' | grep '"name":"blog"'""",
                'kubectl -n web-system logs deployment/web | grep -e "fork server" -e "Reconcile succeeded"',
                "kubectl -n web-system describe pods --selector app.kubernetes.io/name=web",
            ),
            OF_LOGS,
        ),
    ),
    Guide("docs/reference/watches.md", INTEGRATION),
    Guide("docs/reference/validate.md", INTEGRATION),
    Guide("docs/concepts/status.md", "tests/integration/test_guide.py"),
    Guide("docs/concepts/reconciliation.md", "tests/integration/test_guide.py"),
)
BY_HAND = {
    "bench/README.md": "measurements of a quarter of an hour, which mean something on a quiet machine only",
}


def guide(page: str) -> Guide:
    """Return the entry of a page. Raises KeyError."""
    return {each.page: each for each in GUIDES}[page]


def steps(text: str) -> list[Step]:
    """Return the commands of a page in their order."""
    return list(_steps(text))


def parts(text: str) -> Iterator[ShownFile | Step]:
    """Yield what a reader of a page does in its order: files to write, and commands to run."""
    for found in PART.finditer(text):
        path, continued, content = found.groups()
        if path is not None:
            yield ShownFile(path, content, continued is not None)
        elif found[0].startswith("```console\n"):
            yield from _steps(found[0])


def write_files(text: str, directory: Path) -> None:
    """Write the files that a page shows with their names."""
    for name, content in FILE.findall(text):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)


def _steps(text: str) -> Iterator[Step]:
    for block in CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Step(command, tuple(shown))
