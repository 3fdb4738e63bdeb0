"""The fleet's authority: what it signs, and what it does not; and that OpenSSL reads it so."""

import base64
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.identity.authority import Authority, KeyPair
from tests.fixtures.rows import table_row

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
NS = 1_000_000_000


def csr(*names, key=None, scheme=hashes.SHA256):
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name) for name in names])
    signed = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, scheme and scheme())
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def openssl(*arguments, **options):
    return subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, check=False, **options
    ).stdout.decode()


@pytest.fixture(scope="module")
def pair():
    return authority.make_authority("edgemeter fleet lab", NOW)


def test_a_certificate_has_the_name_that_the_handler_chose(pair):
    """A certificate has the name that the handler chose and the key of the request.

    It is valid from 2020 on; a server whose clock says 1970 does not sign one that ends before it
    begins.
    """
    request = authority.read_request(csr("pi-1"))
    issued = Authority(pair).issue_device(request, "pi-7", "1", int(NOW.timestamp()) * NS)
    certificate = x509.load_pem_x509_certificate(issued.pem.encode())
    assert certificate.subject.rfc4514_string() == "CN=pi-7"
    assert certificate.not_valid_before_utc == datetime(2020, 1, 1, tzinfo=timezone.utc)
    assert certificate.public_key() == request.public_key
    assert issued.not_after_ns == int((NOW + timedelta(days=730)).timestamp()) * NS
    assert (issued.device, issued.serial, issued.key_sha256) == ("pi-7", "1", request.key_sha256)
    assert (
        Authority(pair).issue_device(request, "pi-7", "1", 0).not_after_ns
        > int(authority.NOT_BEFORE.timestamp()) * NS
    )


def test_a_request_with_another_key_is_refused():
    """A request with RSA, another curve, another scheme or two names is refused."""
    rsa_key = rsa.generate_private_key(65537, 2048)
    for key, scheme in (
        (rsa_key, hashes.SHA256),
        (ec.generate_private_key(ec.SECP384R1()), hashes.SHA256),
        (ed25519.Ed25519PrivateKey.generate(), None),
    ):
        with table_row(type(key)), pytest.raises(ConfigError, match="P-256"):
            authority.read_request(csr("pi-1", key=key, scheme=scheme))
    with pytest.raises(ConfigError, match="2 common names"):
        authority.read_request(csr("pi-1", "pi-2"))


def test_a_request_that_another_key_signed_is_refused():
    """A changed signature is refused, because it does not prove that the sender has the key."""
    lines = csr("pi-1").strip().splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[-3] ^= 1
    forged = "\n".join([lines[0], base64.encodebytes(bytes(der)).decode().strip(), lines[-1]])
    with pytest.raises(ConfigError, match="not signed by its own key"):
        authority.read_request(forged)


def test_what_is_no_request_is_one_line():
    """Empty, garbled and cut-off text is refused in one line."""
    for text in (
        "",
        "x",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        "\0" * 100,
        "ä" * 50,
    ):
        with table_row(text):
            with pytest.raises(ConfigError, match="not a certificate signing request") as error:
                authority.read_request(text)
            assert "\n" not in str(error.value)


def test_every_list_is_newer_than_the_one_before(pair):
    """Each list of revoked certificates has a later date than the last, and none in the future.

    OpenSSL takes the newer list by its date, in seconds, however fast they follow each other.
    """
    signing, listed, dates = Authority(pair), None, []
    for count in range(4):
        listed = signing.revoked_list(
            [f"{number:x}" for number in range(1, count + 1)], NOW, listed
        )
        assert authority.revoked_numbers(listed) == {
            f"{number:x}" for number in range(1, count + 1)
        }
        parsed = x509.load_pem_x509_crl(listed)
        dates.append(parsed.last_update_utc)
        assert parsed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == int(
            parsed.last_update_utc.timestamp()
        )
    assert dates == [NOW - timedelta(days=1) + timedelta(seconds=count) for count in range(4)]


def test_a_damaged_authority_is_an_error(pair):
    """A truncated key and a key of another authority are errors."""
    with pytest.raises(ConfigError, match="cannot be read"):
        Authority(KeyPair(pair.certificate, pair.key[:40]))
    with pytest.raises(ConfigError, match=r"not the key of ca\.crt"):
        Authority(KeyPair(pair.certificate, authority.make_authority("other", NOW).key))
    with pytest.raises(ConfigError, match="not a list of revoked"):
        authority.revoked_numbers(b"garbage")


@pytest.mark.needs("openssl")
def test_openssl_takes_what_the_authority_signs(pair, tmp_path):
    """OpenSSL accepts the authority's certificates, lists and release key.

    The chain satisfies strict rules and is for clients alone; the list of revoked certificates is
    found by the hash of the name.
    """
    issued = Authority(pair).issue_device(
        authority.read_request(csr("pi-1")), "pi-7", "1", int(NOW.timestamp()) * NS
    )
    files = {
        "ca.crt": pair.certificate,
        "own.crt": issued.pem.encode(),
        "list": Authority(pair).revoked_list([issued.number], NOW, None),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    verify = ["verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.crt"]
    assert openssl(*verify, "own.crt", cwd=tmp_path).strip().endswith("OK")
    text = openssl("x509", "-in", "own.crt", "-noout", "-text", cwd=tmp_path)
    assert all(
        words in text
        for words in ("TLS Web Client Authentication", "CA:FALSE", "Jan  1 00:00:00 2020 GMT")
    )
    assert "OK" not in openssl(*verify, "-crl_check", "-CRLfile", "list", "own.crt", cwd=tmp_path)
    for name in (" Our  Fleet ", "x" * 64, "Flotte ÄÖ é", "ISTANBUL İ"):
        with table_row(name):
            named = authority.make_authority(name, NOW)
            assert (
                Authority(named).name_hash()
                == openssl("x509", "-hash", "-noout", input=named.certificate).strip()
            )
    private = authority.make_key()
    public = authority.public_of(private)
    for name, data in {"release.key": private, "release.pub": public, "manifest": b"{}"}.items():
        (tmp_path / name).write_bytes(data)
    openssl("dgst", "-sha256", "-sign", "release.key", "-out", "sig", "manifest", cwd=tmp_path)
    output = openssl(
        "dgst", "-sha256", "-verify", "release.pub", "-signature", "sig", "manifest", cwd=tmp_path
    )
    assert output.strip() == "Verified OK"
