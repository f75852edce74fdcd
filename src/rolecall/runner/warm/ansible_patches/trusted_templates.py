"""``k8s: template:`` of kubernetes.core before 5.3.0 renders its file with ansible-core 2.19 and newer.

Since 2.19, ansible-core renders only text marked as trusted. These versions of the collection read the file of a
template themselves and don't mark it, so that the API server would receive the template. The file is part of the role:
its text is marked here, as later versions of the collection do.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ansible import template
from ansible.plugins import loader

from rolecall.system.wrapping import wrap

ACTION = "kubernetes.core.k8s"


def install() -> None:
    """Mark the text of each template that ``k8s`` reads; do nothing if ansible-core has no such mark."""
    action = loader.action_loader.get(ACTION, class_only=True)
    trust = getattr(template, "trust_as_template", None)
    if action is not None and trust is not None:
        wrap(action, "get_template_data", partial(_trusted, trust))


@contextmanager
def _trusted(trust: Callable[[str], str], original: Any, action: Any, template_path: str) -> Iterator[str]:
    with original(action, template_path) as text:
        yield trust(text)
