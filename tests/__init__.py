"""The tests, and the ansible-core that they run with."""

from importlib.metadata import version
from typing import Final

from rolecall.runner.config.ansible_config import release_numbers

CORE: Final = release_numbers(version("ansible-core"))[:2]
"""The installed minor version of ansible-core, such as (2, 18): what it says and accepts differs."""
