"""The command `edgemeter fleet apply`: which devices it goes to, what it prints, how it ends."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.apply import applying
from edgemeter.provisioning.apply.board import SshTarget
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, free_port


def test_fleet_toml_states_where_a_device_is(tmp_path):
    """The section of a device in fleet.toml states its host, user and port.

    Port 22 is left to ssh's own configuration; without a host, the message names the lines to add.
    """
    folder = FleetFolder(tmp_path)
    folder.fleet_file.write_text(
        'fleet = "lab"\n[server]\nbroker = "broker.example"\n[device.nowhere]\n'
        '[device.pi]\nhost = "pi.example"\nuser = "pi"\n[device.nano]\nhost = '
        '"192.0.2.7"\nport = 2222\n'
    )
    with Registry(folder.registry) as registry, registry.transaction() as statements:
        devices.put(statements, Device("joined", "lab"))
    assert applying.read_targets(folder, "pi | nano") == [
        SshTarget("nano", "192.0.2.7", None, 2222),
        SshTarget("pi", "pi.example", "pi", None),
    ]
    for selection, lines in (
        ("nowhere", r"host.*\[device\.nowhere\]"),
        ("joined", r"\[device\.joined\] with"),
        ("absent", "no device"),
    ):
        with table_row(selection), pytest.raises(ConfigError, match=lines):
            applying.read_targets(folder, selection)


@pytest.fixture
def command(bench):
    """Return a function that runs the command over a fleet of the bench and an absent board.

    Both are tagged.
    """
    port = bench.device.server.port
    bench.fleet.fleet_file.write_text(
        f'fleet = "lab"\n[server]\nbroker = "broker.example"\n'
        f'[device.board]\nhost = "{LOOPBACK}"\nport = {port}\nuser = "{bench.device.user}"\ntags '
        '= ["rack"]\n'
        f'[device.away]\nhost = "{LOOPBACK}"\nport = {free_port()}\ntags = ["rack"]\n'
    )
    bench.fleet.ca_certificate.write_text(
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    )
    Registry(bench.fleet.registry).close()
    options = ["--release", str(bench.releases[0])]
    options += [part for option in bench.device.options() for part in ("--ssh-option", option)]

    def run(*arguments):
        with bench.is_the_device():
            return CliRunner().invoke(
                fleet,
                ["--folder", str(bench.fleet.path), "apply", *arguments, *options],
                catch_exceptions=True,
            )

    return run


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
def test_a_selection_goes_to_each_and_ends_with_1_when_one_failed(bench, command):
    """Both boards have a row in the table, and the status is 1 because one of them failed.

    The remedy for the failed board stands below its row, and no secret is printed. Where everything
    has been done already, the status is 0.
    """
    result = command("--on", "rack & board=* | device=board | device=away")
    assert result.exit_code == 1
    rows = {
        line.split()[0]: line
        for line in result.stdout.splitlines()
        if line.startswith(("board", "away"))
    }
    assert "changed" in rows["board"]
    assert "failed" in rows["away"]
    assert (
        "away: failed: 127.0.0.1: nothing listens there: enable SSH (`sudo "
        "systemctl enable --now ssh`)"
    ) in result.stderr
    assert bench.current == "1.0.0"
    assert "token" not in result.output
    (device,) = json.loads(command("--on", "board", "--format", "json").stdout)["devices"]
    assert (device["device"], device["result"], device["remedy"]) == ("board", "ok", None)
    assert {step["state"] for step in device["steps"]} <= {"ok", "skipped"}
