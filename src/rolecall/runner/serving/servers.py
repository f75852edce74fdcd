"""Starts the operator's own servers according to the settings."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rolecall.kube.client import Client
from rolecall.runner.config.settings import Settings
from rolecall.runner.serving.certificate import ServingCertificate, mounted_directory
from rolecall.runner.serving.listener import Address, parse_address, serve
from rolecall.runner.serving.metrics_endpoint import metrics_application
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.serving.probes import Readiness, probes_application
from rolecall.runner.serving.token_reviews import TokenReviewer
from rolecall.runner.serving.user_metrics_endpoint import HOST, user_metrics_application
from rolecall.system.logs import get_logger

logger = get_logger("serving")


@asynccontextmanager
async def serving(
    settings: Settings, client: Client, metrics: OperatorMetrics, readiness: Readiness
) -> AsyncIterator[int]:
    """Serve probes, metrics and the endpoint for metrics of roles; yield the port of the latter, on loopback.

    Raise ConfigurationError if an address is invalid or the operator cannot listen on it.
    """
    async with AsyncExitStack() as stack:
        await _serve_probes(stack, settings, readiness)
        await _serve_metrics(stack, settings, client, metrics)
        address = Address(HOST, settings.user_metrics_port, "--user-metrics-port")
        port = await stack.enter_async_context(serve(user_metrics_application(metrics.user_metrics.apply), address))
        logger.debug("Serving the endpoint for metrics of roles", port=port)
        yield port


async def _serve_probes(stack: AsyncExitStack, settings: Settings, readiness: Readiness) -> None:
    address = parse_address(settings.health_probe_bind_address, "--health-probe-bind-address")
    if address is not None:
        port = await stack.enter_async_context(serve(probes_application(readiness), address))
        logger.info("Serving health probes", host=address.host, port=port)


async def _serve_metrics(stack: AsyncExitStack, settings: Settings, client: Client, metrics: OperatorMetrics) -> None:
    address = parse_address(settings.metrics_bind_address, "--metrics-bind-address")
    if address is None:
        return
    context = tls_of(stack, settings, metrics)
    reviewer = TokenReviewer(client) if settings.metrics_require_rbac else None
    port = await stack.enter_async_context(serve(metrics_application(metrics.render, reviewer), address, context))
    logger.info("Serving metrics", host=address.host, port=port, secure=settings.metrics_secure)


def tls_of(stack: AsyncExitStack, settings: Settings, metrics: OperatorMetrics) -> ssl.SSLContext | None:
    """Return what encrypts metrics and the live page, None if nothing does; renewed certificates count until the end.

    Raise ConfigurationError if the mounted certificate is invalid.
    """
    if not settings.metrics_secure:
        return None
    certificate = ServingCertificate(mounted_directory(), lambda ok: metrics.count_certificate(succeeded=ok))
    certificate.load()
    _run_beside(stack, certificate)
    return certificate.context


def _run_beside(stack: AsyncExitStack, certificate: ServingCertificate) -> None:
    task = asyncio.create_task(certificate.watch(), name="certificate of the metrics endpoint")

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
