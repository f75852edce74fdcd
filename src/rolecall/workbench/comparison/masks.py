"""Secret values of runs, and texts without them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rolecall.kube.bodies import decode, objects_in
from rolecall.runner.config.watches import Watch
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.secrets.mask import Mask
from rolecall.runner.secrets.values import is_about_secrets, marked_texts, secret_texts
from rolecall.workbench.comparison.objects import text_in_base64

SENSITIVE: Final = "(sensitive)"


def sensitive_values(watch: Watch, records: Iterable[RunRecord], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that runs have read from Secrets, and those that the watch or environment marks as secret."""
    found = dict.fromkeys(secret_texts(watch, environment))
    for record in records:
        found |= dict.fromkeys(marked_texts(watch, record.obj))
        found |= dict.fromkeys(_secrets_read_by(record))
    return tuple(found)


def _secrets_read_by(record: RunRecord) -> Iterator[str]:
    for kept in record.exchanges:
        if kept.response is not None and is_about_secrets(kept.exchange.info):
            for secret in objects_in(decode(kept.response.content, kept.exchange.response_type)):
                data = secret.get("data")
                for value in map(str, data.values()) if isinstance(data, dict) else ():
                    yield text_in_base64(value) or value


def redactor(secrets: Iterable[str], mask: Mask | None = None) -> Callable[[str], str]:
    """Return a function that replaces secret values, and those of a mask, in a text."""
    mask = mask or Mask()
    for text in secrets:
        mask.add(text)
    return mask.redactor(SENSITIVE)
