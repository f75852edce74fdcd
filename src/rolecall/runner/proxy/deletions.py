"""Recognition of deletions that are complete when the API server responds.

The DELETED watch event has a resourceVersion that the response to the DELETE does not contain. So the run's own
deletions are recognized by the object's uid. Only a deletion that is complete in the response is recorded, because only
then the run knows that the object is gone. If a finalizer or a terminating pod delays the deletion, the event comes
later and must trigger a reconcile.
"""

from http import HTTPStatus

from rolecall.kube.metadata import is_being_deleted, metadata_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.bodies import decode
from rolecall.runner.proxy.conditional_writes import WriteResult
from rolecall.runner.proxy.request_info import RequestInfo


def removed_uid(info: RequestInfo, result: WriteResult) -> str:
    """Return the uid of the object that the request has removed, empty if there is none or its deletion is pending."""
    if info.verb != "delete" or info.subresource or info.is_dry_run or result.response.status != HTTPStatus.OK:
        return ""
    content = decode(result.body, result.response.headers.get("Content-Type", ""))
    if not isinstance(content, dict):
        return ""
    if content.get("kind") == "Status":
        details = content.get("details")
        return str(details.get("uid") or "") if isinstance(details, dict) else ""
    return uid_of(content) if _is_removed(content) else ""


def _is_removed(obj: RawObject) -> bool:
    """Return whether the returned object no longer exists: no grace period and no finalizer delays its deletion."""
    metadata = metadata_of(obj)
    is_terminating = is_being_deleted(obj) and metadata.get("deletionGracePeriodSeconds") != 0
    return not is_terminating and not metadata.get("finalizers")
