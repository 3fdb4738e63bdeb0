"""Release keys: kept offline from the start, and rotated by commands; the devices' part is in update/test_key_rotation.py."""

import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import authority, release_keys
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import install
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
    """Write a key pair."""
    private = authority.make_key()
    (folder / "release.key").write_bytes(private)
    (folder / "release.pub").write_bytes(authority.public_of(private))


@pytest.fixture
def server(tmp_path):
    """Return the path of a new fleet."""
    return tmp_path / "fleet"


def test_a_release_key_is_offline_from_the_start(server, offline):
    """The server never has the private key; a second `init` with the same key changes nothing, with another one it is refused."""
    command = ("init", "--broker", "127.0.0.1", "--release-public-key", offline / "release.pub")
    assert "release.pub" in run_fleet(server, *command).stdout
    folder = FleetFolder(server)
    assert folder.release_public_key.read_bytes() == (offline / "release.pub").read_bytes()
    assert not folder.release_key.exists()
    assert "nothing to make" in run_fleet(server, *command).stdout
    make_keys(offline)
    with pytest.raises(ConfigError, match="keys --rotate --public-key"):
        run_fleet(server, *command)


@pytest.mark.needs("openssl")
def test_a_release_is_signed_where_the_key_is(server, offline, tmp_path):
    """Built without a key, it is refused; signed by openssl, it is a release."""
    run_fleet(server, "init", "--broker", "127.0.0.1", "--release-public-key", offline / "release.pub")
    unsigned = small_release.make(tmp_path, "0.0.1", None, tmp_path / "packed")
    with pytest.raises(ConfigError, match=r"'manifest\.sig'"):
        run_fleet(server, "release", "add", unsigned)
    script = (
        f"tar xf {unsigned} manifest.json && openssl dgst -sha256 -sign {offline}/release.key -out manifest.sig manifest.json"
        f" && tar rf {unsigned} manifest.sig"
    )
    subprocess.run(script, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the command of the page
    assert "0.0.1" in run_fleet(server, "release", "add", unsigned).stdout


def test_a_rotation_has_both_keys_until_it_is_finished(server):
    """Releases are signed by the old key while it is open, by the new one afterwards; each step once, the numbers grow."""
    run_fleet(server, "init", "--broker", "127.0.0.1")
    folder = FleetFolder(server)
    before, old = folder.release_key.read_bytes(), release_keys.read_keys(folder.release_public_key)
    run_fleet(server, "release", "keys", "--rotate")
    opened = release_keys.read_keys(folder.release_public_key)
    assert (old.number, opened.number, opened.keys[1:]) == (0, 1, old.keys)
    assert folder.release_key.read_bytes() == before
    with pytest.raises(ConfigError, match="keys --finish"):
        run_fleet(server, "release", "keys", "--rotate")
    run_fleet(server, "release", "keys", "--finish")
    ended = release_keys.read_keys(folder.release_public_key)
    assert (ended.number, ended.keys) == (2, opened.keys[:1])
    assert folder.release_key.read_bytes() != before
    assert not folder.next_release_key.exists()
    with pytest.raises(ConfigError, match="no rotation is open"):
        run_fleet(server, "release", "keys", "--finish")


def test_the_lowest_release_stays_through_a_rotation_and_counts_as_new_keys(server):
    """Devices take keys with a greater number only; a version that cannot be compared is refused."""
    run_fleet(server, "init", "--broker", "127.0.0.1")
    folder = FleetFolder(server)
    assert "lowest release: any\n" in run_fleet(server, "release", "keys").stdout
    with pytest.raises(ConfigError, match="not a version"):
        run_fleet(server, "release", "keys", "--lowest", "new")
    assert "lowest release: any\n" in run_fleet(server, "release", "keys").stdout
    before = release_keys.read_keys(folder.release_public_key)
    run_fleet(server, "release", "keys", "--lowest", "1.2")
    keys = release_keys.read_keys(folder.release_public_key)
    assert (keys.number, keys.keys, keys.lowest) == (1, before.keys, "1.2")
    run_fleet(server, "release", "keys", "--rotate")
    run_fleet(server, "release", "keys", "--finish")
    ended = release_keys.read_keys(folder.release_public_key)
    assert (ended.number, len(ended.keys), ended.lowest) == (3, 1, "1.2")
    assert install.lowest_version(folder.release_public_key.read_bytes()) == "1.2"


def test_a_rotation_that_was_killed_is_completed_by_the_same_command(server):
    """After the private key was written, or moved, and before the public ones were."""
    run_fleet(server, "init", "--broker", "127.0.0.1")
    folder = FleetFolder(server)
    before = folder.release_public_key.read_bytes()
    run_fleet(server, "release", "keys", "--rotate")
    private, opened = folder.next_release_key.read_bytes(), folder.release_public_key.read_bytes()
    folder.release_public_key.write_bytes(before)
    run_fleet(server, "release", "keys", "--rotate")
    assert folder.next_release_key.read_bytes() == private
    assert release_keys.read_keys(folder.release_public_key).is_open
    run_fleet(server, "release", "keys", "--finish")
    folder.release_public_key.write_bytes(opened)
    run_fleet(server, "release", "keys", "--finish")
    assert folder.release_key.read_bytes() == private
    # The pair fits: what the new key signs is taken by the keys that are left.
    (public,) = release_keys.read_keys(folder.release_public_key).keys
    assert authority.public_of(private) == public


def test_a_file_that_holds_no_public_key_is_refused(server, offline, tmp_path):
    """A private key, a key on another curve, two keys: no fleet is made."""
    other = tmp_path / "other.pub"
    two = (offline / "release.pub").read_bytes() + authority.public_of(authority.make_key())
    curve = ec.generate_private_key(ec.SECP384R1()).public_key()
    foreign = curve.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for message, content in (("no public key", (offline / "release.key").read_bytes()), ("2 public keys", two), ("not on P-256", foreign)):
        other.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            run_fleet(server, "init", "--broker", "127.0.0.1", "--release-public-key", other)
    assert not server.exists()
