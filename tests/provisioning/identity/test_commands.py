"""The commands around a fleet's identity, without a broker: what they print, keep and refuse."""

import json
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract import identity
from edgemeter.provisioning.campaigns import planning
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry import certificates, devices
from tests.fixtures.rows import table_row


def test_a_token_stands_in_its_join_file_alone(lab, tmp_path):
    """Not in the table and not in the JSON; the file is its owner's alone; the device is expected from then on."""
    text = lab.run("token", "pi-1", "pi-2", "pi-1", "--output", tmp_path / "cards", "--hours", "48")
    document = json.loads(lab.run("token", "pi-3", "--output", tmp_path / "cards", "--json"))
    for name in ("pi-1", "pi-2", "pi-3"):
        path = tmp_path / "cards" / f"{name}.join.toml"
        token = identity.read_join_file(path).token
        assert len(token) >= 43
        assert token not in text + json.dumps(document)
        assert path.stat().st_mode & 0o777 == 0o600
        assert devices.find(lab.registry, name).trust == "expected"
    assert text.count("pi-1.join.toml") == 1
    assert len(certificates.open_tokens(lab.registry, 0)) == 3


def test_a_token_whose_file_cannot_be_written_does_not_end_the_one_before(lab, tmp_path):
    """A card may hold that one already."""
    lab.run("token", "pi-1", "--output", tmp_path / "cards")
    before = certificates.open_tokens(lab.registry, 0)
    (tmp_path / "file").touch()
    with pytest.raises(EdgemeterError, match="cannot write"):
        lab.run("token", "pi-1", "--output", tmp_path / "file" / "in")
    assert certificates.open_tokens(lab.registry, 0) == before


def test_a_device_that_can_have_no_token_stops_no_other(lab, tmp_path):
    """Something stands where the file of the second would be: the others have theirs, what there is is listed, and it can be repeated."""
    cards = tmp_path / "cards"
    (cards / "pi-2.join.toml").mkdir(parents=True)
    arguments = ["--folder", str(lab.folder.path), "token", "pi-1", "pi-2", "pi-3", "--output", str(cards)]
    result = CliRunner().invoke(fleet, arguments)
    assert "no token for 1 of 3 devices, the others have theirs: repeat it for pi-2" in str(result.exception)
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["device", "pi-1", "pi-2", "pi-3"]
    assert "no token" in lines[2]
    waiting = {token.device: token.token_id for token in certificates.open_tokens(lab.registry, time.time_ns())}
    assert waiting == {name: identity.token_id(identity.read_join_file(cards / f"{name}.join.toml").token) for name in ("pi-1", "pi-3")}
    users = {client["username"] for client in json.loads(lab.folder.broker_access.read_text())["clients"]}
    assert users == {"edgemeter-operator", *waiting.values()}
    repeated = CliRunner().invoke(fleet, [*arguments, "--json"])
    assert [(entry["device"], "error" in entry) for entry in json.loads(repeated.stdout)] == [
        ("pi-1", False),
        ("pi-2", True),
        ("pi-3", False),
    ]
    (cards / "pi-2.join.toml").rmdir()
    assert CliRunner().invoke(fleet, arguments).exit_code == 0
    assert {token.device for token in certificates.open_tokens(lab.registry, time.time_ns())} == {"pi-1", "pi-2", "pi-3"}


def test_the_inventory_states_what_is_expected(lab):
    """Serial, board and tags of fleet.toml come along."""
    with lab.folder.fleet_file.open("a") as file:
        file.write('[device.pi-1]\nserial = "77"\nboard = "pi5"\ntags = ["coral"]\n')
    lab.token("pi-1")
    device = devices.find(lab.registry, "pi-1")
    expected = {"serial": "77", "board": "pi5", "tags": ("coral",)}
    assert {name: getattr(device, name) for name in expected} == expected


def test_a_name_that_no_device_may_have_is_refused(lab):
    """Those of services, and whatever a topic, a certificate or a file name cannot hold."""
    for name in ("edgemeter-operator", "edgemeter-fleet", "a/b", "+", "#", "", " x", "x" * 65, "a\nb", "../x", "a;b"):
        with table_row(name):
            with pytest.raises(ConfigError) as error:
                lab.run("token", "--", name)
            assert "\n" not in str(error.value)
            assert certificates.open_tokens(lab.registry, 0) == []


def test_a_device_is_revoked_without_a_broker_too(lab):
    """It is out when the broker starts; twice is no error; a dry run changes nothing."""
    lab.token("pi-1")
    assert "would be revoked" in lab.run("revoke", "pi-1", "--dry-run")
    assert devices.find(lab.registry, "pi-1").trust == "expected"
    assert "revoked" in lab.run("revoke", "pi-1")
    assert "already revoked" in lab.run("revoke", "pi-1")
    clients = json.loads(lab.folder.broker_access.read_text())["clients"]
    assert clients[1:] == [{"username": "pi-1", "disabled": True, "roles": [{"rolename": "revoked"}]}]
    assert certificates.open_tokens(lab.registry, 0) == []


def test_what_is_not_there_is_named_with_its_remedy(lab):
    """A device, any device, a release."""
    for command, message in (
        (("doctor", "nobody"), "no device matches 'nobody': `edgemeter fleet list` lists the 0 devices"),
        (("restart", "all"), "`edgemeter fleet token DEVICE` lets one join"),
        (("release", "add", "nothing.tar"), "there is no release 'nothing.tar'"),
        (("release", "add", "."), "there is no release '.'"),
        *((command, "'pi-9'") for command in (("requests", "accept", "pi-9"), ("requests", "reject", "pi-9"))),
    ):
        with table_row(command):
            with pytest.raises(ConfigError) as error:
                lab.run(*command)
            assert message in str(error.value)


def test_a_sample_is_printed_and_loads(tmp_path):
    """The sample is printed with its comments, and its reader takes it."""
    for kind, read in (("fleet", fleet_file.read), ("campaign", planning.read_campaign_file)):
        with table_row(kind):
            text = CliRunner().invoke(fleet, ["sample", kind]).stdout
            assert "## " in text
            (tmp_path / "sample.toml").write_text(text)
            assert read(tmp_path / "sample.toml")


def test_without_a_fleet_every_command_names_how_to_make_one(tmp_path):
    """One line that names the command."""
    for command in (["token", "x"], ["revoke", "x"], ["requests", "accept", "x"], ["requests"]):
        printed = CliRunner().invoke(fleet, ["--folder", str(tmp_path / "none"), *command])
        assert "edgemeter fleet init" in str(printed.exception), command
        assert not (tmp_path / "none").exists(), command
    # It has no --public-key, so its error names none.
    result = CliRunner().invoke(fleet, ["--folder", str(tmp_path), "release", "add", "x.tar"])
    assert "--folder" in str(result.exception)
    assert "--public-key" not in str(result.exception)
