import base64
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from rolecall.system.files import write_private
from rolecall.workbench.controlplane.certificates import CertificateAuthority, certificate_user, kubeconfig


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    """Return an authority."""
    return CertificateAuthority("one")


def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_a_client_is_the_user_and_in_the_group(authority: CertificateAuthority) -> None:
    subject = _certificate(authority.client("somebody", "some-group").certificate).subject
    assert [part.value for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["somebody"]
    assert [part.value for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["some-group"]


def test_the_authority_vouches_for_what_it_signed_and_another_does_not(authority: CertificateAuthority) -> None:
    signed = _certificate(authority.server("127.0.0.1").certificate)
    signed.verify_directly_issued_by(_certificate(authority.own.certificate))
    stranger = _certificate(CertificateAuthority("two").own.certificate)
    with pytest.raises(ValueError, match="does not match"):
        signed.verify_directly_issued_by(stranger)


def test_a_server_is_known_by_its_address(authority: CertificateAuthority) -> None:
    certificate = _certificate(authority.server("127.0.0.1").certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]


def test_the_standard_library_takes_the_pair(authority: CertificateAuthority, tmp_path: Path) -> None:
    pair = authority.client("somebody")
    write_private(tmp_path / "pem", pair.certificate + pair.key)
    ssl.create_default_context().load_cert_chain(tmp_path / "pem")


def test_a_kubeconfig_is_complete_in_itself(authority: CertificateAuthority) -> None:
    pair = authority.client("somebody")
    content = yaml.safe_load(kubeconfig("one", "https://127.0.0.1:1", pair.certificate, certificate_user(pair), "here"))
    context = content["contexts"][0]["context"]
    assert content["current-context"] == content["contexts"][0]["name"]
    assert context["namespace"] == "here"
    assert base64.b64decode(content["users"][0]["user"]["client-key-data"]) == pair.key
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"


def test_private_files_are_private_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
