import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509

from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.serving.servers import Address, ServingCertificate, create_self_signed, serve
from tests.integration.world import eventually


class Mounted:
    """A folder with a certificate, as a Secret is mounted, and what was read from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: list[bool] = []
        self.certificate = ServingCertificate(folder, self.reads.append)

    def put(self) -> int:
        """Put a new certificate there and return its serial number."""
        certificate, key = create_self_signed()
        (self.folder / "tls.key").write_bytes(key)
        (self.folder / "tls.crt").write_bytes(certificate)
        return x509.load_pem_x509_certificate(certificate).serial_number

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """Serve something with it and give the port."""
        self.certificate.load()
        task = asyncio.create_task(self.certificate.watch())
        async with serve(web.Application(), Address("127.0.0.1", 0, "flag"), self.certificate.context) as port:
            yield port
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


async def seen(port: int) -> int:
    """Return the serial number of the certificate that a client sees."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


async def until_seen(port: int, serial: int) -> None:
    await eventually(lambda: seen(port), lambda found: found == serial, 10, "the new certificate is served")


async def test_mounted_certificate_is_served(mounted: Mounted) -> None:
    serial = mounted.put()
    async with mounted.served() as port:
        assert await seen(port) == serial
    assert mounted.reads == [True]


async def test_renewed_certificate_is_served_without_restart(mounted: Mounted) -> None:
    mounted.put()
    async with mounted.served() as port:
        await until_seen(port, mounted.put())
    assert mounted.reads[-1] is True


async def test_invalid_renewal_keeps_the_old_certificate(mounted: Mounted) -> None:
    serial = mounted.put()
    async with mounted.served() as port:
        (mounted.folder / "tls.crt").write_text("no certificate")

        async def last_read() -> bool:
            return mounted.reads[-1]

        await eventually(last_read, lambda succeeded: not succeeded, 10, "the broken certificate is noticed")
        assert await seen(port) == serial


async def test_self_signed_certificate_is_created_by_default(mounted: Mounted) -> None:
    async with mounted.served() as port:
        assert await seen(port) > 0
    assert mounted.reads == []


def test_invalid_certificate_is_an_error(mounted: Mounted) -> None:
    mounted.put()
    (mounted.folder / "tls.key").write_text("no key")
    with pytest.raises(ConfigurationError, match=r"invalid certificate in '.*'"):
        mounted.certificate.load()
    assert mounted.reads == [False]
