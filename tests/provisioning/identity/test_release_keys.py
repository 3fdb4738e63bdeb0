"""Tests of release keys that are offline from the start.

How devices take new keys is tested in update/test_key_rotation.py.
"""

import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures import small_release
from tests.fixtures.fleet_command import run_fleet

pytestmark = pytest.mark.usefixtures("no_broker")


@pytest.fixture
def offline(tmp_path):
    """Return a folder with a key pair that is not on the server."""
    folder = tmp_path / "safe"
    folder.mkdir()
    make_keys(folder)
    return folder


def make_keys(folder):
    private = authority.make_key()
    (folder / "release.key").write_bytes(private)
    (folder / "release.pub").write_bytes(authority.public_of(private))


@pytest.fixture
def server(tmp_path):
    return tmp_path / "fleet"


def test_a_release_key_is_offline_from_the_start(server, offline):
    """With a release key of its own the server never has the private key.

    A second `init` with the same key changes nothing; with another key it is refused.
    """
    command = ("init", "--broker", "127.0.0.1", "--release-public-key", offline / "release.pub")
    assert "release.pub" in run_fleet(server, *command).stdout
    folder = FleetFolder(server)
    assert folder.release_public_key.read_bytes() == (offline / "release.pub").read_bytes()
    assert not folder.release_key.exists()
    assert "nothing to make" in run_fleet(server, *command).stdout
    make_keys(offline)
    with pytest.raises(ConfigError, match=r"fleet-security\.md"):
        run_fleet(server, *command)


@pytest.mark.needs("openssl")
def test_a_release_is_signed_where_the_key_is(server, offline, tmp_path):
    """A release that was built without a key is refused until openssl has signed it."""
    run_fleet(
        server, "init", "--broker", "127.0.0.1", "--release-public-key", offline / "release.pub"
    )
    unsigned = small_release.make(tmp_path, "0.0.1", None, tmp_path / "packed")
    with pytest.raises(ConfigError, match=r"'manifest\.sig'"):
        run_fleet(server, "release", "add", unsigned)
    script = (
        f"tar xf {unsigned} manifest.json && openssl dgst -sha256 -sign {offline}/release.key "
        "-out manifest.sig manifest.json"
        f" && tar rf {unsigned} manifest.sig"
    )
    # It is the command of the page.
    subprocess.run(script, shell=True, cwd=tmp_path, check=True)  # noqa: S602
    assert "0.0.1" in run_fleet(server, "release", "add", unsigned).stdout


def test_a_file_that_holds_no_public_key_is_refused(server, offline, tmp_path):
    """A fleet is not made with a private key, a key on another curve, or a file of two keys."""
    other = tmp_path / "other.pub"
    curve = ec.generate_private_key(ec.SECP384R1()).public_key()
    foreign = curve.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    two = (offline / "release.pub").read_bytes() + foreign
    for message, content in (
        ("no readable public key", (offline / "release.key").read_bytes()),
        ("not on P-256", foreign),
        ("not on P-256", two),
    ):
        other.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            run_fleet(server, "init", "--broker", "127.0.0.1", "--release-public-key", other)
    assert not server.exists()
