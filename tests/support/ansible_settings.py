"""An environment without settings of Ansible, and the ansible.cfg of its user."""

from pathlib import Path

import pytest


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment without settings of Ansible; the user's empty ansible.cfg hides that of the machine."""
    environment = {"HOME": str(tmp_path)}
    write_config(environment, "")
    return environment


def write_config(environment: dict[str, str], text: str) -> Path:
    """Write the ansible.cfg of the user and return its directory."""
    file = Path(environment["HOME"]) / ".ansible.cfg"
    file.write_text(f"[defaults]\n{text}\n")
    return file.parent
