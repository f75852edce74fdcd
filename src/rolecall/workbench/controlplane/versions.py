"""The programs of the embedded control plane and the releases of them that go with this version of rolecall.

One place says which programs there are, which release each belongs to and which Go package builds it;
tools/controlplane/go.mod pins the same releases for the build, and a test holds the two together. The oldest releases
that are accepted from somewhere else, such as PATH, stand here too. Looking for the programs is the work of
rolecall.workbench.controlplane.binaries.
"""

from dataclasses import dataclass

KUBERNETES = "v1.37.1"
ETCD = "v3.7.0"
KWOK = "v0.8.0"

OLDEST_KUBERNETES = (1, 36)  # exec in simulated pods: see components.DECLARED_FEATURE
OLDEST_ETCD = (3, 6)
OLDEST_KWOK = (0, 8)

PINS = f"etcd {ETCD}\nkubernetes {KUBERNETES}\nkwok {KWOK}\n"


@dataclass(frozen=True)
class Program:
    """One program: its file's name, its project, the Go package that builds it, the oldest release accepted."""

    name: str
    project: str
    go_package: str
    oldest: tuple[int, int]


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", OLDEST_KUBERNETES)


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", OLDEST_ETCD),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", OLDEST_KWOK),
    _kubernetes("kubectl"),
)
PROGRAM_NAMES = tuple(program.name for program in PROGRAMS)
SERVER_NAMES = frozenset({"kube-apiserver", "kube-controller-manager", "kube-scheduler"})
