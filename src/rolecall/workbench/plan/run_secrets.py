"""The secret values that planned runs have met, so that no plan shows them."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.bodies import decode
from rolecall.runner.record.recorder import marked_texts, secret_texts
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.record.secret_values import is_about_secrets

_MIN_LENGTH: Final = 4
"""A shorter value says nothing, and would hide half of a plan."""


def secrets_of(watch: Watch, records: Iterable[RunRecord], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the runs have read from Secrets, and what the watch and the environment say is secret."""
    found = dict.fromkeys(secret_texts(watch, environment))
    for record in records:
        found |= dict.fromkeys(marked_texts(watch, record.obj))
        found |= dict.fromkeys(text for text in _texts_read(record) if len(text) >= _MIN_LENGTH)
    return tuple(found)


def _texts_read(record: RunRecord) -> Iterator[str]:
    for kept in record.exchanges:
        if kept.answer is not None and is_about_secrets(kept.exchange.info):
            answer = decode(record.bodies.get(kept.answer), kept.exchange.answer_type)
            for secret in _secrets_in(answer):
                yield from _values_of(secret)


def _secrets_in(answer: Any) -> Iterator[dict[str, Any]]:
    if isinstance(answer, dict):
        items = answer.get("items")
        yield from (each for each in (items if isinstance(items, list) else [answer]) if isinstance(each, dict))


def _values_of(secret: Mapping[str, Any]) -> Iterator[str]:
    data = secret.get("data")
    for value in data.values() if isinstance(data, dict) else ():
        try:
            yield base64.b64decode(str(value), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            yield str(value)
