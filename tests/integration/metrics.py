"""The metrics of an operator, read as Prometheus does."""

import aiohttp

from tests.integration.operators import Operator
from tests.support.prometheus import samples


def port_of(operator: Operator, message: str) -> int:
    """Return the port that an operator has told of."""
    return int(operator.messages(message)[-1]["port"])


async def read(session: aiohttp.ClientSession, operator: Operator) -> dict[str, float]:
    """Return the metrics of an operator by series, as they are written."""
    async with session.get(f"http://127.0.0.1:{port_of(operator, 'Serving metrics')}/metrics") as response:
        assert response.status == 200
        return samples(await response.text())
