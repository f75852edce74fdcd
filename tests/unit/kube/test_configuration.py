import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

LOAD = """
import asyncio, os, signal, sys
from rolecall.kube.credentials import source_of
print(asyncio.run(source_of(sys.argv[1]).load()).ssl_ca_cert)
if sys.argv[2]:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Give a kubeconfig that contains a certificate."""
    content = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://it", "certificate-authority-data": "QUJD"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


def load(kubeconfig: Path, temporary: Path, *, killed: bool = False) -> Path:
    """Load a kubeconfig in a process of its own; return where the process has put the certificate."""
    command = [sys.executable, "-c", LOAD, str(kubeconfig), "x" if killed else ""]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
    return Path(done.stdout.strip())


def test_no_certificate_of_a_kubeconfig_stays(kubeconfig: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    left = load(kubeconfig, temporary, killed=True)
    assert left.read_bytes() == base64.b64decode("QUJD")
    assert left.parent.stat().st_mode & 0o777 == 0o700
    load(kubeconfig, temporary)
    assert list(temporary.iterdir()) == []
