"""The command `edgemeter fleet apply`: which devices it goes to, what it prints, how it ends."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.apply import applying
from edgemeter.provisioning.apply.board import SshTarget
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, ServerEntry
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, free_port

FLEET = FleetFile(
    fleet="lab",
    server=ServerEntry(broker="broker.example"),
    device={
        "pi": DeviceEntry(host="pi.example", user="pi", governor="performance"),
        "nano": DeviceEntry(host="192.0.2.7", port=2222),
        "nowhere": DeviceEntry(),
    },
)


def test_fleet_toml_states_where_a_device_is_and_how_it_is_to_run():
    """Port 22 is left to ssh's own configuration; a device named twice is one; the command line has the last word."""
    pi, nano = applying.of_fleet(["pi", "nano", "pi"], FLEET)
    assert (pi.target.login, pi.target.port) == ("pi@pi.example", None)
    assert pi.settings.governor == "performance"
    assert (nano.target.login, nano.target.port, nano.settings.governor) == ("192.0.2.7", 2222, None)
    target = SshTarget("pi", "192.0.2.9", "root", 22)
    pi = applying.of_host(target, FLEET)
    assert (pi.target, pi.settings.governor) == (target, "performance")
    other = applying.of_host(SshTarget("new", "new.example"), FLEET)
    assert (other.target.login, other.settings.governor) == ("new.example", None)


def test_a_device_without_a_host_names_the_lines_to_add():
    """Its table in fleet.toml, or the `host` in it; a device that has one is taken."""
    assert applying.of_fleet(["pi"], FLEET)
    with pytest.raises(ConfigError, match=r"host.*\[device\.nowhere\]"):
        applying.of_fleet(["nowhere"], FLEET)
    for named in (FLEET, None):
        with pytest.raises(ConfigError, match=r"\[device\.absent\] with"):
            applying.of_fleet(["absent"], named)


@pytest.fixture
def command(bench):
    """Return what runs the command over the bench's fleet: a board, one that is away, both tagged."""
    port = bench.device.server.port
    bench.fleet.fleet_file.write_text(
        f'fleet = "lab"\n[server]\nbroker = "broker.example"\n'
        f'[device.board]\nhost = "{LOOPBACK}"\nport = {port}\nuser = "{bench.device.user}"\ntags = ["rack"]\n'
        f'[device.away]\nhost = "{LOOPBACK}"\nport = {free_port()}\ntags = ["rack"]\n'
    )
    bench.fleet.ca_certificate.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    Registry(bench.fleet.registry).close()
    options = ["--prefix", str(bench.prefix), "--release", str(bench.releases[0])]
    options += [part for option in bench.device.options() for part in ("--ssh-option", option)]

    def run(*arguments):
        return CliRunner().invoke(fleet, ["--folder", str(bench.fleet.path), "apply", *arguments, *options], catch_exceptions=True)

    return run


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
def test_a_selection_goes_to_each_and_ends_with_1_when_one_failed(bench, command):
    """The table has a row for both, the remedy of the one that failed stands below it, and no secret; done already, it is 0."""
    result = command("--on", "rack & board=* | device=board | device=away")
    assert result.exit_code == 1
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith(("board", "away"))}
    assert "changed" in rows["board"]
    assert "failed" in rows["away"]
    assert "away: failed: 127.0.0.1: nothing listens there: enable SSH (`sudo systemctl enable --now ssh`)" in result.stderr
    assert bench.current == "1.0.0"
    assert "token" not in result.output
    (device,) = json.loads(command("board", "--format", "json").stdout)["devices"]
    assert (device["device"], device["result"], device["remedy"]) == ("board", "ok", None)
    assert {step["state"] for step in device["steps"]} <= {"ok", "skipped"}


def test_a_wrong_command_line_is_a_usage_error(tmp_path):
    """Arguments that contradict each other, and values out of range, end with exit status 2."""
    for arguments in (
        [],
        ["a", "b", "--host", "h"],
        ["--host", "h"],
        ["--host", "h", "--on", "all"],
        ["board", "--host", "h", "--prefix", "p"],
    ):
        with table_row(arguments):
            result = CliRunner().invoke(fleet, ["--folder", str(tmp_path), "apply", *arguments, "--release", "r"])
            assert result.exit_code == 2
