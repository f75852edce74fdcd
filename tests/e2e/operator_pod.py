"""The pod of the operator that leads, and what can be fetched there."""

from tests.e2e.cluster import NAMESPACE, Cluster, eventually

FETCH = """
import ssl, sys, urllib.error, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[2]} if sys.argv[2:] else {}
request = urllib.request.Request(sys.argv[1], headers=headers)
try:
    print(urllib.request.urlopen(request, timeout=10, context=ssl._create_unverified_context()).read().decode())
except urllib.error.HTTPError as error:
    print("HTTP", error.code)
"""


def leader(cluster: Cluster) -> str:
    """Return the name of the pod that holds the Lease."""
    holder = cluster.get("lease/rolecall", "-n", NAMESPACE).get("spec", {}).get("holderIdentity") or ""
    return str(holder).rpartition("_")[0]


def in_operator(cluster: Cluster, *command: str) -> str:
    """Run a command in the pod that leads and return what it printed."""
    # After a rollout, there is no leader for a moment.
    pod = eventually(lambda: leader(cluster), bool, 480, "a replica leads")
    return cluster.kubectl("exec", "-n", NAMESPACE, pod, "--", *command)


def fetch(cluster: Cluster, url: str, *token: str) -> str:
    """Return the response of a URL in the leader's pod, or ``HTTP`` and the code of an error."""
    return in_operator(cluster, "python3", "-c", FETCH, url, *token)
