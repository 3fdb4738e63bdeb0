"""Facts about signing bundles."""

import hashlib
import importlib
import stat
import subprocess
import sys

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.bundle import archive, signature
from edgemeter.agent.bundle.verify import verify
from tests.fixtures.bundle_factory import rezip, write_bundle
from tests.fixtures.rows import table_row


@pytest.fixture
def key(tmp_path):
    signature.keygen(tmp_path / "lab.key")
    return tmp_path / "lab.key"


def test_a_signed_bundle_names_its_key(tmp_path, key):
    """The key is the expected one if the public key is named; else the signer is unknown."""
    path = write_bundle(tmp_path, signer=signature.signer(key))
    expected = signature.fingerprint_of_file(tmp_path / "lab.key.pub")
    verification = verify(path, expected)
    assert (
        verification.signature.state,
        verification.signature.fingerprint,
        verification.signature.expected,
    ) == ("signed", expected, True)
    assert verification.holds
    assert verify(path).signature.expected is None
    assert verify(path).holds
    signature.keygen(tmp_path / "other.key")
    verification = verify(path, signature.fingerprint_of_file(tmp_path / "other.key.pub"))
    assert (verification.signature.state, verification.signature.expected, verification.holds) == (
        "signed",
        False,
        False,
    )


def test_an_unsigned_bundle_is_reported_as_such(tmp_path, key):
    """An unsigned bundle holds where no key is asked for, and does not where one is."""
    path = write_bundle(tmp_path)
    assert verify(path).signature.state == "unsigned"
    assert verify(path).holds
    assert not verify(path, signature.fingerprint_of_file(key.with_name("lab.key.pub"))).holds


def test_a_wrong_signature_never_holds(tmp_path, key):
    """A signature is wrong if any part of it does not fit the others.

    The cases are a changed manifest, a cut signature, and a key that is garbled or absent.
    """
    for name, change in (
        ("manifest.json", lambda text: text.replace(b'"0.1.0"', b'"0.1.1"')),
        ("manifest.sig", lambda content: content[:-1]),
        ("signer.pem", lambda _: b"-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----\n"),
        ("signer.pem", None),
    ):

        def spoil(files, name=name, change=change):
            content = files.pop(name)
            files |= {name: change(content)} if change else {}

        with table_row(name):
            verification = verify(
                rezip(write_bundle(tmp_path, signer=signature.signer(key)), spoil, listed=False)
            )
            assert (verification.signature.state, verification.holds) == ("wrong", False)
            assert verification.signature.detail


def test_a_changed_record_with_a_new_manifest_is_not_signed(tmp_path, key):
    """The manifest holds every file's hash, so that its signature covers them."""

    def better(files):
        files["record.json"] = files["record.json"].replace(b'"device":"pi-1"', b'"device":"pi-2"')

    verification = verify(rezip(write_bundle(tmp_path, signer=signature.signer(key)), better))
    assert verification.signature.state == "wrong"


def test_the_private_key_is_for_its_owner_only_and_never_overwritten(key):
    """The key's mode is 0600, and a second keygen with the same name fails in one line.

    So does one where only the public key exists.
    """
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    with pytest.raises(ConfigError, match=r"lab.key.*File exists"):
        signature.keygen(key)
    assert key.read_bytes() == before
    key.unlink()
    with pytest.raises(ConfigError, match="File exists"):
        signature.keygen(key)
    assert not key.exists()


def _pem(kind, **settings):
    """Return a private key of another kind, or protected by a passphrase."""
    ec = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
    private = (
        ec.generate_private_key(ec.SECP256R1())
        if kind == "ec"
        else ed25519.Ed25519PrivateKey.generate()
    )
    protection = (
        serialization.BestAvailableEncryption(b"pass") if settings else serialization.NoEncryption()
    )
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )


def test_a_key_that_cannot_sign_is_one_line(tmp_path):
    """An empty, garbled, protected, absent or other kind of key is found before measuring."""
    for content, message in [
        (lambda: b"", "is not a private key in PEM"),
        (lambda: b"\xff\x00 garbage", "is not a private key in PEM"),
        (lambda: _pem("ec"), "is not an Ed25519 key"),
        (lambda: _pem("ed", passphrase=True), "without a passphrase"),
    ]:
        (tmp_path / "key").write_bytes(content())
        with table_row(message), pytest.raises(ConfigError, match=message):
            signature.signer(tmp_path / "key")
    with pytest.raises(ConfigError, match=r"cannot read the key .*none"):
        signature.signer(tmp_path / "none")
    (tmp_path / "x").write_text("x")
    with pytest.raises(ConfigError, match="is not a public key in PEM"):
        signature.fingerprint_of_file(tmp_path / "x")


def test_without_the_library_a_signature_is_not_checked(tmp_path, key, monkeypatch):
    """An unchecked signature is neither right nor wrong, and never the expected one.

    An attempt to sign states what to install.
    """
    path = write_bundle(tmp_path, signer=signature.signer(key))
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    verification = verify(path, "0" * 64)
    assert verification.signature.state == "unchecked"
    assert "edgemeter[sign]" in verification.signature.detail
    assert not verification.holds
    with pytest.raises(UnavailableError, match=r"edgemeter\[sign\]"):
        signature.signer(key)


@pytest.mark.needs("openssl")
def test_openssl_agrees(tmp_path, key):
    """The documented way to check a signature without edgemeter works.

    The fingerprint is that of the key's DER form.
    """
    files = archive.unpack(write_bundle(tmp_path, signer=signature.signer(key)))
    for name in ("manifest.json", "manifest.sig", "signer.pem"):
        (tmp_path / name).write_bytes(files[name])
    command = (
        "openssl pkeyutl -verify -pubin -inkey signer.pem -rawin -in manifest.json -sigfile "
        "manifest.sig"
    )
    completed = subprocess.run(
        command.split(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Signature Verified Successfully" in completed.stdout, completed.stderr
    command = "openssl pkey -pubin -in signer.pem -outform DER"
    der = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True).stdout
    assert hashlib.sha256(der).hexdigest() == signature.fingerprint(files["signer.pem"])
