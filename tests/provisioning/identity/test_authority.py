"""The fleet's authority: what it signs, and what it does not."""

import base64
import subprocess
from datetime import datetime, timedelta, timezone

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.identity.authority import Authority, KeyPair
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("openssl")

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
NS = 1_000_000_000
P256 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


def csr(folder, *arguments, subject="/CN=pi-1"):
    """Return a CSR that openssl made."""
    path = folder / "one.csr"
    openssl("req", "-new", "-nodes", "-keyout", folder / "one.key", "-out", path, "-subj", subject, *arguments)
    return path.read_text()


def openssl(*arguments):
    """Return what openssl prints, also where it fails."""
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, check=False).stdout.decode()


@pytest.fixture(scope="module")
def pair():
    """Return an authority's files."""
    return authority.make_authority("edgemeter fleet lab", NOW)


def test_a_certificate_holds_the_names_that_the_handler_chose_and_is_valid_from_2020(pair, tmp_path):
    """What openssl reads of it: name, dates, number, purpose; the chain holds under strict rules."""
    request = authority.read_request(csr(tmp_path, *P256))
    issued = Authority(pair).issue_device(request, "pi-7", "1", int(NOW.timestamp()) * NS)
    (tmp_path / "ca.crt").write_bytes(pair.certificate)
    (tmp_path / "one.crt").write_text(issued.pem)
    text = openssl("x509", "-in", tmp_path / "one.crt", "-noout", "-text")
    assert "Subject: CN = pi-7" in text
    assert "Not Before: Jan  1 00:00:00 2020 GMT" in text
    assert "TLS Web Client Authentication" in text
    assert "CA:FALSE" in text
    assert issued.not_after_ns == int((NOW + timedelta(days=730)).timestamp()) * NS
    assert (
        openssl("x509", "-in", tmp_path / "one.crt", "-noout", "-serial").strip().lower()
        == f"serial={issued.number.zfill(len(issued.number) + len(issued.number) % 2)}"
    )
    verified = openssl("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", tmp_path / "ca.crt", tmp_path / "one.crt")
    assert verified.strip().endswith("OK")
    # A server in 1970 signs nothing that ended before it began.
    assert Authority(pair).issue_device(request, "pi-7", "1", 0).not_after_ns > int(authority.NOT_BEFORE.timestamp()) * NS


def test_a_key_of_another_kind_is_refused(tmp_path):
    """RSA, another curve, another scheme; nor does a broker guess which of two names counts."""
    for kind in (["rsa:2048"], ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"], ["ed25519"]):
        with table_row(kind), pytest.raises(ConfigError, match="does not have a P-256 key"):
            authority.read_request(csr(tmp_path, "-newkey", *kind))
    with pytest.raises(ConfigError, match="2 common names"):
        authority.read_request(csr(tmp_path, *P256, subject="/CN=pi-1/CN=pi-2"))


def test_a_csr_that_another_key_signed_is_refused(tmp_path):
    """One byte of the signature changed: whoever sends it has not the key."""
    lines = csr(tmp_path, *P256).strip().splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[-3] ^= 1
    forged = "\n".join([lines[0], base64.encodebytes(bytes(der)).decode().strip(), lines[-1]])
    with pytest.raises(ConfigError, match="not signed by its own key"):
        authority.read_request(forged)


def test_what_is_no_csr_is_one_line():
    """Empty, garbled and cut-off text is refused in one line that says what was expected."""
    for text in ("", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "\0" * 100, "ä" * 50):
        with table_row(text):
            with pytest.raises(ConfigError, match="not a certificate signing request") as error:
                authority.read_request(text)
            assert "\n" not in str(error.value)


def test_every_list_is_newer_than_the_one_before(pair, tmp_path):
    """However fast they follow each other, by date and by number, and none is dated in the future."""
    signing, listed, dates = Authority(pair), None, []
    for count in range(4):
        listed = signing.revoked_list([f"{number:x}" for number in range(1, count + 1)], NOW, listed)
        assert authority.revoked_numbers(listed) == {f"{number:x}" for number in range(1, count + 1)}
        (tmp_path / "list").write_bytes(listed)
        dates.append(openssl("crl", "-in", tmp_path / "list", "-noout", "-lastupdate", "-crlnumber"))
    assert dates == sorted(set(dates))
    assert "crlNumber=0x04" in dates[-1] or "crlNumber=04" in dates[-1]
    assert "Nov 19" in dates[-1]


def test_a_damaged_authority_is_one_line(pair):
    """A truncated key, a key of another authority."""
    with pytest.raises(ConfigError, match="cannot be read"):
        Authority(KeyPair(pair.certificate, pair.key[:40]))
    with pytest.raises(ConfigError, match=r"not the key of ca\.crt"):
        Authority(KeyPair(pair.certificate, authority.make_authority("other", NOW).key))
    with pytest.raises(ConfigError, match="not a list of revoked"):
        authority.revoked_numbers(b"garbage")


def test_a_release_key_signs_what_openssl_verifies(tmp_path):
    """As devices check releases: ECDSA over SHA-256."""
    private, public = authority.make_release_key()
    (tmp_path / "release.key").write_bytes(private)
    (tmp_path / "release.pub").write_bytes(public)
    (tmp_path / "manifest").write_bytes(b"{}")
    openssl("dgst", "-sha256", "-sign", tmp_path / "release.key", "-out", tmp_path / "sig", tmp_path / "manifest")
    output = openssl("dgst", "-sha256", "-verify", tmp_path / "release.pub", "-signature", tmp_path / "sig", tmp_path / "manifest")
    assert output.strip() == "Verified OK"
    assert authority.public_of(private) == public
