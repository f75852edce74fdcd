import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rolecall.runner.warm import freshness
from rolecall.runner.warm.freshness import Freshness


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plugins" / "colour.py"
    path.parent.mkdir()
    path.write_text("COLOUR = 'red'\n")
    module = ModuleType("ansible_collections.some.thing")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


def test_nothing_is_lost_as_long_as_nothing_changes(plugin: Path) -> None:
    assert plugin.exists()
    assert Freshness.now().lost() == ""


def test_a_changed_plugin_is_noticed(plugin: Path) -> None:
    before = Freshness.now()
    plugin.write_text("COLOUR = 'green'\n")
    assert before.lost() == f"{plugin} has changed"


def test_a_new_plugin_beside_another_is_noticed(plugin: Path) -> None:
    before = Freshness.now()
    os.utime(plugin.parent, ns=(1, 1))
    assert before.lost() == f"{plugin.parent} has changed"


def test_a_plugin_that_is_gone_is_noticed(plugin: Path) -> None:
    before = Freshness.now()
    plugin.unlink()
    assert "has changed" in before.lost()


def test_a_new_ansible_cfg_is_noticed(plugin: Path, tmp_path: Path) -> None:
    assert plugin.exists()
    before = Freshness.now()
    (tmp_path / ".ansible.cfg").write_text("[defaults]\n")
    assert "has changed" in before.lost()


def test_a_file_that_nothing_was_loaded_from_does_not_count(plugin: Path, tmp_path: Path) -> None:
    assert plugin.exists()
    before = Freshness.now()
    (tmp_path / ".bash_history").write_text("ls\n")
    assert before.lost() == ""


def test_growth_beyond_the_bound_is_noticed(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plugin.exists()
    before = Freshness.now()
    grown = before.memory_bytes + freshness.GROWTH_LIMIT_BYTES + 1
    monkeypatch.setattr(freshness, "_memory_bytes", lambda: grown)
    assert before.lost().startswith("the server has grown by ")
