"""A backup of the fleet's folder: what comes back is what was there, and whatever is wrong with a backup is one line."""

import json
import re
import shutil
import stat
import subprocess

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.rows import table_row


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory):
    """Return a folder with a fleet, in which one device is revoked, and its backup `fleet.age` with `passphrase`."""
    path = tmp_path_factory.mktemp("made")
    (path / "passphrase").write_text("a long passphrase\n")
    run_fleet(path / "fleet", "init", "--broker", "127.0.0.1")
    run_fleet(path / "fleet", "token", "pi-1", "pi-2", "--output", path / "cards")
    run_fleet(path / "fleet", "revoke", "pi-2")
    content = path / "fleet/content/ab"
    content.mkdir(parents=True)
    (content / "large").write_bytes(b"content" * 1000)
    run_fleet(path / "fleet", "backup", path / "fleet.age", "--passphrase-file", path / "passphrase")
    return path


def files(folder):
    """Return the bytes and modes of a fleet's files but the registry, which is compared by what it says."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file() and "registry" not in path.name}
    links = {path.relative_to(folder).as_posix(): path.readlink() for path in folder.rglob("*") if path.is_symlink()}
    return {name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), links.get(name)) for name, path in paths.items()}


@pytest.mark.slow
def test_what_comes_back_is_what_was_there(backed_up, tmp_path):
    """Keys, certificates, inventory, registry with its revoked device, modes; not the content. `init` then adds nothing but paths."""
    restored = tmp_path / "restored"
    text = run_fleet(restored, "restore", backed_up / "fleet.age", "--passphrase-file", backed_up / "passphrase").stdout
    assert "restored the fleet 'default' as of" in text
    before = {name: content for name, content in files(backed_up / "fleet").items() if not name.startswith("content/")}
    # What `serve` asks about after a restore, until it is deleted.
    assert json.loads((restored / "restored.json").read_bytes())["is_broker_asked"] is False
    (restored / "restored.json").unlink()
    assert files(restored) == before
    # The running broker finds newer lists of revoked certificates by these.
    assert any(link is not None for _, _, link in before.values())
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    was, now = (json.loads(run_fleet(folder, "list", "--json").stdout) for folder in (backed_up / "fleet", restored))
    assert {entry["device"] for entry in now["devices"]} == {entry["device"] for entry in was["devices"]} >= {"pi-1", "pi-2"}
    run_fleet(restored, "init")
    assert str(restored) in (restored / "broker/mosquitto.conf").read_text()
    assert FleetFolder(restored).ca_key.read_bytes() == FleetFolder(backed_up / "fleet").ca_key.read_bytes()


@pytest.mark.slow
def test_a_backup_reveals_nothing(backed_up):
    """No name of a device, no key."""
    sealed = (backed_up / "fleet.age").read_bytes()
    assert sealed.startswith(b"age-encryption.org/v1\n-> scrypt ")
    assert b"pi-1" not in sealed
    assert b"PRIVATE KEY" not in sealed
    assert stat.S_IMODE((backed_up / "fleet.age").stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_spoilt_backup_is_one_line_and_restores_nothing(backed_up, tmp_path):
    """Cut short at the end and in its head, one bit changed, empty, another file."""
    sealed = (backed_up / "fleet.age").read_bytes()
    for spoilt, message in (
        (sealed[:-20], "damaged or cut short"),
        (sealed[:100], "damaged or cut short"),
        (sealed[:-5000] + bytes([sealed[-5000] ^ 1]) + sealed[-4999:], "damaged or cut short"),
        (b"", "is not a backup of a fleet"),
        (b"PK\x03\x04 something else", "is not a backup of a fleet"),
    ):
        with table_row(spoilt[:30], len(spoilt)):
            (tmp_path / "spoilt.age").write_bytes(spoilt)
            with pytest.raises(ConfigError, match=message) as error:
                run_fleet(tmp_path / "fleet", "restore", tmp_path / "spoilt.age", "--passphrase-file", backed_up / "passphrase")
            assert "\n" not in str(error.value)
            assert [path.name for path in tmp_path.iterdir()] == ["spoilt.age"]


def test_a_machine_that_is_too_slow_for_the_passphrase_is_distinguished_from_damage(backed_up, tmp_path):
    """As made by a machine thousands of times as fast."""
    sealed = re.sub(rb"(-> scrypt \S+) \d+", rb"\1 30", (backed_up / "fleet.age").read_bytes(), count=1)
    (tmp_path / "fast.age").write_bytes(sealed)
    with pytest.raises(UnavailableError, match=r"too slow or too busy .* around \d+ seconds\.\): try again later"):
        run_fleet(tmp_path / "fleet", "restore", tmp_path / "fast.age", "--passphrase-file", backed_up / "passphrase")
    assert not (tmp_path / "fleet").exists()


@pytest.mark.slow
def test_a_wrong_passphrase_and_no_passphrase_are_one_line_each(backed_up, tmp_path, monkeypatch):
    """Another one, an empty file, no file, and no terminal to ask on."""
    (tmp_path / "wrong").write_text("another passphrase\n")
    (tmp_path / "empty").write_text("\n")
    for file, message in (("wrong", "does not open the backup"), ("empty", "is empty"), ("none", "cannot read the passphrase")):
        with pytest.raises(ConfigError, match=message):
            run_fleet(tmp_path / "fleet", "restore", backed_up / "fleet.age", "--passphrase-file", tmp_path / file)
    monkeypatch.delenv("EDGEMETER_BACKUP_PASSPHRASE_FILE", raising=False)
    with pytest.raises(ConfigError, match="EDGEMETER_BACKUP_PASSPHRASE_FILE"):
        run_fleet(tmp_path / "fleet", "restore", backed_up / "fleet.age")
    assert not (tmp_path / "fleet").exists()


@pytest.mark.slow
def test_an_older_state_does_not_replace_a_fleet(backed_up, tmp_path):
    """A folder with anything in it is refused; a rehearsal says what is in the backup and writes nothing."""
    folder = tmp_path / "fleet"
    shutil.copytree(backed_up / "fleet", folder)
    before = files(folder)
    with pytest.raises(ConfigError, match="is not empty"):
        run_fleet(folder, "restore", backed_up / "fleet.age", "--passphrase-file", backed_up / "passphrase")
    assert files(folder) == before
    text = run_fleet(
        tmp_path / "new", "restore", backed_up / "fleet.age", "--passphrase-file", backed_up / "passphrase", "--dry-run"
    ).output
    assert "would restore the fleet 'default' as of" in text
    assert "revoke again whoever was revoked" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.needs("openssl")
def test_a_key_of_the_authority_that_a_passphrase_protects(tmp_path, monkeypatch):
    """New and later; without it, or with another, nothing is signed and the error is one line."""
    # `init` sets it in this process: set here first, it is what it was before when the test has ended.
    monkeypatch.setenv("EDGEMETER_CA_PASSPHRASE_FILE", "")
    monkeypatch.delenv("EDGEMETER_CA_PASSPHRASE_FILE")
    (tmp_path / "passphrase").write_text("a long passphrase\n")
    (tmp_path / "wrong").write_text("another\n")
    folder = FleetFolder(tmp_path / "fleet")
    run_fleet(folder.path, "init", "--broker", "127.0.0.1")
    assert "protected by the passphrase" in run_fleet(folder.path, "init", "--ca-passphrase-file", tmp_path / "passphrase").stdout
    monkeypatch.delenv("EDGEMETER_CA_PASSPHRASE_FILE", raising=False)
    assert b"ENCRYPTED" in folder.ca_key.read_bytes()
    with pytest.raises(ConfigError, match="no terminal to ask on"):
        run_fleet(folder.path, "token", "pi-1", "--output", tmp_path)
    monkeypatch.setenv("EDGEMETER_CA_PASSPHRASE_FILE", str(tmp_path / "wrong"))
    with pytest.raises(ConfigError, match=r"does not open ca\.key"):
        run_fleet(folder.path, "token", "pi-1", "--output", tmp_path)
    monkeypatch.setenv("EDGEMETER_CA_PASSPHRASE_FILE", str(tmp_path / "passphrase"))
    run_fleet(folder.path, "token", "pi-1", "--output", tmp_path)
    run_fleet(folder.path, "revoke", "pi-1")
    assert "nothing to make" in run_fleet(folder.path, "init").stdout
    command = ["openssl", "pkey", "-in", folder.ca_key, "-passin", f"file:{tmp_path / 'passphrase'}", "-noout"]
    assert subprocess.run(command, check=False).returncode == 0
