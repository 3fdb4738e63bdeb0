import re

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory import fleet_file, fleet_folder
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.rows import table_row

SAMPLE = fleet_file.SAMPLE


def test_the_sample_loads_with_and_without_its_commented_defaults(tmp_path):
    """The sample shows only keys that exist, whether its defaults are commented out or not."""
    assert fleet_file.read(SAMPLE).device["pi5-01"].tags == ("coral",)
    bare = tmp_path / "fleet.toml"
    bare.write_text(re.sub(r"^# ", "", SAMPLE.read_text(), flags=re.MULTILINE))
    assert fleet_file.read(bare).server.accept == "token"


def test_a_wrong_file_is_one_line(tmp_path):
    """A missing, unknown or doubled key and a truncated file are errors of one line."""
    for text, message in (
        ("", "fleet"),
        ('fleet = "a"\nfleets = 1', "fleets"),
        ('fleet = "a"', "server"),
        (
            'fleet = "a"\nserver.broker = "b"\n[device.x]\nserial = "1"\n[device.y]\nserial = "1"',
            "same serial",
        ),
        (
            'fleet = "a"\n[device.x]\n[device.y-2]\nbord = "pi5"',
            r"`bord` in \[device\.y-2\] .*did you mean board",
        ),
        (
            'fleet = "a"\n[device.x]\n[device.y-2]\ntags = ["a", "b c"]',
            r"`tags` in \[device\.y-2\] is wrong in item 2",
        ),
        ("fleet = ", "fleet.toml"),
    ):
        with table_row(text):
            path = tmp_path / "fleet.toml"
            path.write_text(text)
            with pytest.raises(ConfigError, match=message):
                fleet_file.read(path)


def test_the_server_may_reach_the_broker_elsewhere_than_devices_do(tmp_path, monkeypatch):
    """The server reaches the broker at the address of the environment, then of fleet.toml.

    Behind a router the public name leads nowhere from inside.
    """
    (tmp_path / "fleet.toml").write_text('fleet = "lab"\n[server]\nbroker = "broker.example"\n')
    for name in ("ca.crt", "fleet.crt", "fleet.key"):
        (tmp_path / name).touch()
    monkeypatch.setenv("EDGEMETER_BROKER", "127.0.0.1:1884")
    inside = fleet_folder.at(tmp_path)
    assert str(fleet_file.fleet_broker_address(inside)) == "127.0.0.1:1884"
    assert fleet_file.fleet_broker_address(FleetFolder(tmp_path)).host == "broker.example"
