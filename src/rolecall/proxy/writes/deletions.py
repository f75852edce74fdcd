"""Which object a run's DELETE has removed at once.

The API server announces the end of an object under a version that the answer to the DELETE does not have, so an own
deletion is known by the object's uid. Only one that is over when it is answered counts: the run knows that this object
is gone. One that waits for finalizers, or for a pod to stop, ends after the run, and that is news for the next one.
"""

from http import HTTPStatus

from rolecall.kube.metadata import is_being_deleted, metadata_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.writes.bodies import decode
from rolecall.proxy.writes.conditional_writes import WriteResult


def removed_uid(info: RequestInfo, outcome: WriteResult) -> str:
    """Return the uid of the object that the request has removed, empty if it removed none or has only begun to."""
    if info.verb != "delete" or info.subresource or info.is_dry_run or outcome.answer.status != HTTPStatus.OK:
        return ""
    answer = decode(outcome.body, outcome.answer.headers.get("Content-Type", ""))
    if not isinstance(answer, dict):
        return ""
    if answer.get("kind") == "Status":
        details = answer.get("details")
        return str(details.get("uid") or "") if isinstance(details, dict) else ""
    return uid_of(answer) if _is_gone(answer) else ""


def _is_gone(answered: RawObject) -> bool:
    """Tell of an answered object whether it is gone: one that lingers says until when, or who holds it."""
    metadata = metadata_of(answered)
    lingers = is_being_deleted(answered) and metadata.get("deletionGracePeriodSeconds") != 0
    return not lingers and not metadata.get("finalizers")
