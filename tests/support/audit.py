"""The audit log of an API server: which requests an account has sent, whatever the account says about it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

from rolecall.workbench.controlplane import components

_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: VERBS}]
"""


@dataclass(frozen=True, slots=True)
class Deletion:
    """An accepted request to delete an object; ``at`` is a POSIX time in seconds."""

    at: float
    resource: str
    name: str


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The audit log of a control plane."""

    file: Path

    def requests_of(self, account: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the requests of a service account of the namespace ``default`` after this size of the log.

        The API server may be writing a line, also at the time of this size.
        """
        user = f"system:serviceaccount:default:{account}"
        content = self.file.read_bytes()
        whole = content[content.rfind(b"\n", 0, since) + 1 : content.rfind(b"\n") + 1]
        lines = whole.decode().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["user"]["username"] == user]

    def deletions_of(self, account: str, agent: str = "") -> list[Deletion]:
        """Return the accepted deletions by a service account and a user agent; those of a collection have no name."""
        return [
            Deletion(
                datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
                entry["objectRef"]["resource"],
                entry["objectRef"].get("name", ""),
            )
            for entry in self.requests_of(account)
            if entry["verb"] in ("delete", "deletecollection")
            and entry.get("responseStatus", {}).get("code", 0) < 300
            and agent in entry.get("userAgent", "")
        ]


@contextmanager
def audited(directory: Path, *verbs: str) -> Iterator[AuditLog]:
    """Give control planes that start meanwhile an audit log in a directory, of requests with these verbs, or of all."""
    policy, log = directory / "policy.yaml", directory / "audit.log"
    policy.write_text(_POLICY.replace("VERBS", json.dumps(verbs)))
    options = components.options()
    audit = {"audit-policy-file": str(policy), "audit-log-path": str(log)}
    with mock.patch.dict(options, {components.API_SERVER: {**options[components.API_SERVER], **audit}}):
        yield AuditLog(log)
