"""An image returns its content, and a run is notified when it is out of date."""

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery, encode, mark_changed

NAMES = st.text(max_size=20)
RESOURCES = st.lists(st.dictionaries(NAMES, st.text() | st.booleans() | st.lists(st.text(max_size=5))), max_size=4)
GROUPS = st.dictionaries(NAMES, st.dictionaries(NAMES, st.none() | RESOURCES, max_size=3), max_size=5)


@given(GROUPS, st.dictionaries(NAMES, NAMES))
def test_image_returns_its_content(
    groups: dict[str, dict[str, list[dict[str, Any]] | None]], version: dict[str, str]
) -> None:
    image = DiscoveryImage.decode(encode(groups, version))
    assert image.version == version
    assert {name: list(versions) for name, versions in image.groups.items()} == {
        name: list(versions) for name, versions in groups.items()
    }
    for group, versions in groups.items():
        for name, resources in versions.items():
            assert image.resources(group, name) == resources


def test_missing_version_has_to_be_requested() -> None:
    image = DiscoveryImage.decode(encode({"apps": {"v1": []}}, {}))
    assert image.resources("apps", "v2") is None
    assert image.resources("batch", "v1") is None


def test_only_requested_versions_are_decoded() -> None:
    data = encode({"apps": {"v1": [{"name": "deployments"}]}, "broken": {"v1": [{"name": "x"}]}}, {})
    image = DiscoveryImage.decode(data.replace(b'[{"name":"x"}]', b'[{"name":"x"]]'))
    assert image.resources("apps", "v1") == [{"name": "deployments"}]
    with pytest.raises(json.JSONDecodeError):
        image.resources("broken", "v1")


def test_run_is_current_until_a_change_is_marked() -> None:
    image, changed = os.memfd_create("image"), os.memfd_create("changed")
    os.write(image, encode({"apps": {"v1": []}}, {}))
    os.write(changed, b"\0")
    known = RunDiscovery.receive(image, changed)
    assert known.image.resources("apps", "v1") == []
    assert not os.get_inheritable(known.descriptor)
    assert known.is_current
    mark_changed(changed)
    assert not known.is_current
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(image)
    os.close(changed)
