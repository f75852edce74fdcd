"""What one module pays to know how two kinds are served, as a program: ``module_discovery.py KUBECONFIG asked|handed``.

It makes the client of kubernetes.core as a module does, over and over, and prints the median of the CPU time in
milliseconds: with the file that kubernetes.core keeps, or with what the operator hands to a run. CPU time of one
process is the same on a busy machine.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.client.discovery import LazyDiscoverer
from ansible_collections.kubernetes.core.plugins.module_utils.k8sdynamicclient import K8SDynamicClient
from kubernetes import config

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery, encode
from rolecall.runner.warm.ansible_patches import known_discovery

HANDED = "handed"
REPEATS = 30
_LOOKED_FOR = ({"api_version": "v1", "kind": "Pod", "prefix": "api"}, {"kind": "Widget"})


async def _image(kubeconfig: str) -> DiscoveryImage:
    async with await Client.connect(kubeconfig) as client:
        served = await AggregatedDiscovery(client).changed()
    if served is None:
        raise RuntimeError("the API server has no discovery data")
    return DiscoveryImage.decode(encode(served.groups, served.version))


def _used(api: Any, file: Path) -> float:
    started = time.process_time()
    client = K8SDynamicClient(api, cache_file=str(file), discoverer=LazyDiscoverer)
    for wanted in _LOOKED_FOR:
        client.resources.get(**{"api_version": "bench.rolecall.dev/v1", **wanted})
    return time.process_time() - started


def main(kubeconfig: str, mode: str) -> None:
    """Measure and print."""
    api = config.new_client_from_config(kubeconfig)
    if mode == HANDED:
        known = RunDiscovery(asyncio.run(_image(kubeconfig)), os.memfd_create("changed"))
        known_discovery.install(known, api.configuration.host)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "cache.json")
        _used(api, file)  # fills the file
        times = [_used(api, file) for _ in range(REPEATS)]
    sys.stdout.write(f"{1000 * statistics.median(times):.3f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
