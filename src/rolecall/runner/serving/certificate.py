"""The certificate of the metrics endpoint: a mounted one, or a self-signed one.

A mounted certificate is reloaded when it is renewed, without a restart. A self-signed certificate is created at start
and kept in memory; it encrypts the connection, but clients can't verify it.
"""

import asyncio
import datetime as dt
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from watchfiles import awatch

from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.logs import get_logger

logger = get_logger("metrics")

_LIFETIME = dt.timedelta(days=365)
_CLOCK_TOLERANCE = dt.timedelta(minutes=5)


def mounted_directory() -> Path:
    """Return the directory where a certificate (``tls.crt``) and its key (``tls.key``) are mounted."""
    return Path(tempfile.gettempdir()) / "k8s-metrics-server" / "serving-certs"


class ServingCertificate:
    """The TLS context of a server; ``on_read`` is called with the success of each attempt to read the certificate."""

    def __init__(self, directory: Path, on_read: Callable[[bool], None]) -> None:
        self._directory = directory
        self._on_read = on_read
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def is_mounted(self) -> bool:
        """Whether there is a mounted certificate."""
        return (self._directory / "tls.crt").exists() and (self._directory / "tls.key").exists()

    def load(self) -> None:
        """Load the mounted certificate, or create one. Raise ConfigurationError if the mounted one is invalid."""
        if not self.is_mounted:
            with tempfile.TemporaryDirectory(prefix="rolecall-") as directory:  # private: a context only reads files
                path = Path(directory) / "pair.pem"
                path.touch(mode=0o600)
                path.write_bytes(b"".join(create_self_signed()))
                self.context.load_cert_chain(path)
            logger.info("Serving metrics with a self-signed certificate", directory=str(self._directory))
            return
        try:
            self._read()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"invalid certificate in {str(self._directory)!r}: {error}") from error

    async def watch(self) -> None:
        """Reload the mounted certificate whenever it changes, until cancelled."""
        if not self.is_mounted:
            return
        async for _ in awatch(self._directory, watch_filter=None, stop_event=asyncio.Event()):
            try:
                self._read()
            except (OSError, ssl.SSLError) as error:
                logger.error("Invalid renewed certificate; keeping the old one", error=str(error))  # noqa: TRY400
            else:
                logger.info("Reloaded the certificate of the metrics endpoint")

    def _read(self) -> None:
        succeeded = False
        try:
            # Load it into another context first: a half-written pair must not break the context in use.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self._files())
            self.context.load_cert_chain(*self._files())
            succeeded = True
        finally:
            self._on_read(succeeded)

    def _files(self) -> tuple[Path, Path]:
        return self._directory / "tls.crt", self._directory / "tls.key"


def create_self_signed() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate and its key, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rolecall metrics")])
    now = dt.datetime.now(dt.UTC)
    hosts = [x509.DNSName(host) for host in dict.fromkeys(("localhost", socket.gethostname())) if host.isascii()]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private
