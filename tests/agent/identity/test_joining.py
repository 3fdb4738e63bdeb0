"""Keeping what the desk sent, through power cuts, and writing the configuration."""

import contextlib
import os
import time

import msgspec
import pytest

from edgemeter.agent.base import config, durable_file, openssl
from edgemeter.agent.base.broker_url import files_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.identity import EnrolmentAnswer
from edgemeter.agent.identity import identity as identity_identity
from edgemeter.agent.identity import joining, renewal
from edgemeter.agent.identity.identity import BoardSerial, Identity, IdentityFiles
from edgemeter.provisioning.identity import authority
from edgemeter.provisioning.identity.authority import Authority
from tests.fixtures.rows import in_folders
from tests.provisioning.identity.lab import now

NS = 1_000_000_000
SERIAL = BoardSerial("100000001", "device-tree", "proc/device-tree/serial-number")
BROKER, SERVICE = "mqtts://broker.example:8883", "https://broker.example:8443"


@pytest.fixture(scope="module")
def signing():
    return Authority(authority.make_authority("edgemeter fleet lab", now()))


@pytest.fixture
def files(tmp_path):
    """Return a home with a key for which a certificate was asked."""
    identity_files = IdentityFiles(tmp_path / "home")
    identity_identity.make_key(identity_files.next_key)
    return identity_files


def accepted(signing, key, device="pi-1"):
    issued = signing.issue_device(
        authority.read_request(identity_identity.certificate_request(key, device)),
        device,
        "1",
        time.time_ns(),
    )
    return EnrolmentAnswer(
        state="accepted",
        now_ns=time.time_ns(),
        device=device,
        fleet="lab",
        number=issued.number,
        certificate=issued.pem,
        not_after_ns=issued.not_after_ns,
    )


@pytest.mark.needs("openssl")
def test_key_and_certificate_change_together_whenever_the_power_goes(signing, files, monkeypatch):
    """After a power cut at any rename, the next start finds the old pair or the new one."""
    joining.take_certificate(
        files, accepted(signing, files.next_key), SERIAL, BROKER, SERVICE, "00"
    )
    old = identity_identity.read_identity(files.home)
    for cut in range(6):
        identity_identity.make_key(files.next_key)
        answer = accepted(signing, files.next_key, f"pi-{cut + 2}")
        steps_left = [cut]

        def write(path, content, mode=0o600, real=durable_file.write, steps_left=steps_left):
            if steps_left[0] == 0:
                raise KeyboardInterrupt
            steps_left[0] -= 1
            real(path, content, mode)

        def sync(folder, real=durable_file.sync, steps_left=steps_left):
            if steps_left[0] == 0:
                raise KeyboardInterrupt
            steps_left[0] -= 1
            real(folder)

        with monkeypatch.context() as patch:
            patch.setattr(durable_file, "write", write)
            patch.setattr(joining.durable_file, "sync", sync)
            with contextlib.suppress(KeyboardInterrupt):
                joining.take_certificate(files, answer, SERIAL, BROKER, SERVICE, "00")
        joining.settle_identity(files)
        stored = identity_identity.read_identity(files.home)
        assert identity_identity.belong_together(files.certificate, files.key), cut
        assert stored.device in {old.device, f"pi-{cut + 2}"}
        assert (
            f"CN = {stored.device}"
            in openssl.run_openssl(
                "x509", "-in", str(files.certificate), "-noout", "-subject"
            ).decode()
        )
        old = stored
    assert old.device == "pi-7"


@pytest.mark.needs("openssl")
def test_a_certificate_for_another_key_changes_nothing(signing, files, tmp_path):
    """A certificate that does not fit the pending key is refused, and no identity is stored."""
    identity_identity.make_key(tmp_path / "other.key")
    with pytest.raises(ConfigError, match="another key"):
        joining.take_certificate(
            files, accepted(signing, tmp_path / "other.key"), SERIAL, BROKER, SERVICE, None
        )
    joining.settle_identity(files)
    assert identity_identity.read_identity(files.home) is None


def test_what_arrived_is_put_in_place_with_its_note_last(tmp_path, monkeypatch):
    """The note of a pending move is removed only once key and certificate are on disk.

    Until then the move is repeated.
    """
    files = IdentityFiles(tmp_path)
    durable_file.make_folder(files.folder, 0o700)
    for name, content in (
        ("next.key", b"k"),
        ("next.crt", b"c"),
        ("next.json", msgspec.json.encode(identity())),
    ):
        (files.folder / name).write_bytes(content)
    synced = []
    monkeypatch.setattr(
        durable_file, "sync", lambda folder: synced.append({path.name for path in folder.iterdir()})
    )
    joining.settle_identity(files)
    assert identity_identity.read_identity(files.home) == identity()
    assert synced == [
        {"device.key", "device.crt", "next.json"},
        {"device.key", "device.crt", "identity.json"},
    ]
    assert (files.key.read_bytes(), files.certificate.read_bytes()) == (b"k", b"c")
    joining.settle_identity(files)
    assert len(synced) == 2


def identity(**changes):
    fields = {
        "device": "pi-1",
        "fleet": "lab",
        "board": BoardSerial("1", "emmc", "x"),
        "broker": BROKER,
    }
    return Identity(
        **{
            **fields,
            "service": SERVICE,
            "number": "1",
            "claim": None,
            "issued_ns": 100 * NS,
            "not_after_ns": 400 * NS,
            **changes,
        }
    )


def test_the_configuration_keeps_what_was_there(tmp_path):
    """Our keys go above the first table, since a key inside a table is another key.

    A second call changes nothing.
    """
    path = tmp_path / "config.toml"
    path.write_text(
        '# mine\nbroker = "old"\npower = ["replay"]\n\n[sensors.replay]\npath = "trace.csv"\n'
        'device = "x"\n'
    )
    files = IdentityFiles(tmp_path / "home")
    joining.configure(files, path, identity())
    text = path.read_text()
    joining.configure(files, path, identity())
    assert path.read_text() == text
    settings = config.read(path)
    assert settings.device == "pi-1"
    assert settings.fleet == "lab"
    assert settings.broker.partition("?")[0] == BROKER
    assert settings.content_url == f"{SERVICE}/content"
    assert (settings.power, settings.sensors) == (
        ("replay",),
        {"replay": {"path": str(tmp_path / "trace.csv"), "device": "x"}},
    )
    assert files_of(settings.broker)["key"] == tmp_path / "home/identity/device.key"
    assert "# mine" in text


def test_a_configuration_may_be_absent_or_empty(tmp_path):
    """The file then holds only our keys, and the agent can read it."""
    for folder, before in in_folders(tmp_path, [None, "", "[sensors]\n", 'power = ["a"]']):
        path = folder / "etc/config.toml"
        if before is not None:
            path.parent.mkdir()
            path.write_text(before)
        joining.configure(IdentityFiles(folder / "home"), path, identity())
        assert config.read(path).device == "pi-1", f"{before!r}"


def test_the_name_in_the_certificate_is_the_devices(tmp_path):
    """A copied card's certificate has the new name while its configuration has the old one.

    The agent's user may not write the configuration.
    """
    path = tmp_path / "config.toml"
    files = IdentityFiles(tmp_path / "home")
    joining.configure(files, path, identity())
    assert config.read(path).device == "pi-1"
    durable_file.write(files.identity, msgspec.json.encode(identity(device="pi-2", fleet="field")))
    assert (config.read(path).device, config.read(path).fleet) == ("pi-2", "field")
    IdentityFiles(tmp_path / "home").identity.write_text("garbage")
    assert config.read(path).device == "pi-1"


def test_a_certificate_is_due_at_two_thirds_of_its_life():
    """The certificate is not due a second earlier."""
    joined = identity()
    assert not renewal.is_due(joined, 299 * NS)
    assert renewal.is_due(joined, 300 * NS)


def test_an_identity_that_cannot_be_read_is_one_line(tmp_path):
    """The certificate may be truncated or belong to somebody else."""
    IdentityFiles(tmp_path).folder.mkdir()
    IdentityFiles(tmp_path).identity.write_text('{"device": "pi')
    with pytest.raises(ConfigError, match="agent join"):
        identity_identity.read_identity(tmp_path)


@pytest.mark.needs("openssl")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_the_agents_user(tmp_path):
    """The first boot runs as root, but the daemon that renews the certificate does not."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    files = IdentityFiles(home)
    durable_file.make_folder(files.folder, 0o700)
    identity_identity.make_key(files.next_key)
    durable_file.write(files.joined, b"")
    for path in (files.folder, files.next_key, files.joined):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534), path
    assert files.folder.stat().st_mode & 0o777 == 0o700
