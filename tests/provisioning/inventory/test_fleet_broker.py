"""Where the server's own commands find the broker."""

from pathlib import Path

from edgemeter.provisioning.inventory import fleet_file, fleet_folder
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder


def test_the_server_may_reach_the_broker_elsewhere_than_devices_do(tmp_path, monkeypatch):
    """The option, then the environment, then fleet.toml: behind a router the public name leads nowhere from inside."""
    (tmp_path / "fleet.toml").write_text('fleet = "lab"\n[server]\nbroker = "broker.example"\n')
    for name in ("ca.crt", "fleet.crt", "fleet.key"):
        (tmp_path / name).touch()
    monkeypatch.setenv("EDGEMETER_BROKER", "127.0.0.1:1884")
    inside = fleet_folder.at(tmp_path)
    assert str(fleet_file.fleet_broker_address(inside)) == "127.0.0.1:1884"
    assert str(fleet_file.fleet_broker_address(inside, "127.0.0.1:1885")) == "127.0.0.1:1885"
    assert fleet_file.fleet_broker_address(FleetFolder(Path(tmp_path))).host == "broker.example"
