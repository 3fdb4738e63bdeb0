"""The commands around a fleet's identity, without a broker: what they print, keep and refuse."""

import json
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract import identity
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.identity import authority, enforcement
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate
from tests.fixtures.fleet_command import run_fleet
from tests.provisioning.identity.lab import open_tokens


def test_a_token_stands_in_its_join_file_alone(lab, tmp_path):
    """A token stands in its join file alone, which only its owner may read.

    It is neither printed nor kept in the registry. The device is expected from then on.
    """
    with lab.folder.fleet_file.open("a") as file:
        file.write('[device.pi-1]\nserial = "77"\nboard = "pi5"\ntags = ["coral"]\n')
    text = lab.run("token", "pi-1", "pi-2", "pi-1", "--output", tmp_path / "cards", "--hours", "48")
    document = json.loads(
        lab.run("token", "pi-3", "--output", tmp_path / "cards", "--format", "json")
    )
    files = [path for path in lab.folder.path.rglob("*") if path.is_file()]
    for name in ("pi-1", "pi-2", "pi-3"):
        path = tmp_path / "cards" / f"{name}.join.toml"
        token = identity.read_join_file(path).token
        assert len(token) == 22
        assert token not in text + json.dumps(document)
        assert not [file for file in files if token.encode() in file.read_bytes()]
        assert path.stat().st_mode & 0o777 == 0o600
        assert devices.find(lab.registry, name).trust == "expected"
    device = devices.find(lab.registry, "pi-1")
    assert (device.serial, device.board, device.tags) == ("77", "pi5", ("coral",))
    assert text.count("pi-1.join.toml") == 1
    assert len(open_tokens(lab.registry)) == 3


def test_a_device_that_can_have_no_token_stops_no_other_and_keeps_the_one_before(lab, tmp_path):
    """An error for one device stops no other device's token, and its earlier token stays valid.

    Here something stands where the second join file would be; the command can be repeated.
    """
    cards = tmp_path / "cards"
    lab.run("token", "pi-2", "--output", tmp_path / "card before")
    before = open_tokens(lab.registry)["pi-2"]
    (cards / "pi-2.join.toml").mkdir(parents=True)
    with pytest.raises(EdgemeterError, match="cannot write"):
        lab.run("token", "pi-2", "--output", cards)
    arguments = [
        "--folder",
        str(lab.folder.path),
        "token",
        "pi-1",
        "pi-2",
        "pi-3",
        "--output",
        str(cards),
    ]
    result = CliRunner().invoke(fleet, arguments)
    assert "repeat it for pi-2" in str(result.exception)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["pi-1:", "pi-2:", "pi-3:"]
    waiting = open_tokens(lab.registry)
    in_files = {
        name: identity.token_id(identity.read_join_file(cards / f"{name}.join.toml").token)
        for name in ("pi-1", "pi-3")
    }
    assert waiting == {**in_files, "pi-2": before}
    repeated = CliRunner().invoke(fleet, [*arguments, "--format", "json"])
    assert [entry["device"] for entry in json.loads(repeated.stdout) if "error" in entry] == [
        "pi-2"
    ]


def test_a_device_is_revoked_without_a_broker_too(lab):
    """Revoking without a broker adds the device to the list that the broker reads at its start.

    Revoking twice is no error.
    """
    lab.token("pi-1")
    with lab.registry.transaction() as statements:
        certificates.put(statements, Certificate("a1", "pi-1", "1", "k", "", 0, 0))
    lab.run("revoke", "pi-1")
    assert "already revoked" in lab.run("revoke", "pi-1")
    assert authority.revoked_numbers(lab.folder.revoked.read_bytes()) == {"a1"}
    assert open_tokens(lab.registry) == {}
    assert certificates.pending_disconnects(lab.registry) == ["pi-1"]


def test_a_broker_on_another_machine_is_not_said_to_have_the_list(lab, monkeypatch):
    """The command does not claim that a broker on another machine refuses the device.

    That broker answers and ends the session, but whether it has the list cannot be known here.
    """
    monkeypatch.setattr(enforcement, "end_session", lambda *_: None)
    assert enforcement.ELSEWHERE in run_fleet(lab.folder.path, "revoke", "pi-1").stderr
    monkeypatch.setattr("edgemeter.provisioning.cli.enrolment.broker_process", lambda _: 77)
    assert run_fleet(lab.folder.path, "revoke", "pi-2").stderr == ""


def test_a_ban_is_ended_by_accepting_the_device(lab):
    """Accepting a device ends its ban; that of another device stays."""
    now_ns = time.time_ns()
    with lab.registry.transaction() as statements:
        for device in ("pi-1", "pi-2"):
            certificates.ban_device(statements, lab.registry, device, "it floods", now_ns)
    assert "its ban is ended" in lab.run("accept", "pi-1")
    assert list(certificates.active_bans(lab.registry, now_ns)) == ["pi-2"]


def test_without_a_fleet_every_command_names_how_to_make_one(tmp_path):
    """Without a fleet, a command names how to make one, and makes no folder.

    A command that needs no fleet names its own option.
    """
    for command in (["token", "x"], ["revoke", "x"], ["accept", "x"], ["requests"]):
        printed = CliRunner().invoke(fleet, ["--folder", str(tmp_path / "none"), *command])
        assert "edgemeter fleet init" in str(printed.exception), command
        assert not (tmp_path / "none").exists(), command
    result = CliRunner().invoke(fleet, ["--folder", str(tmp_path), "release", "add", "x.tar"])
    assert "--folder" in str(result.exception)
