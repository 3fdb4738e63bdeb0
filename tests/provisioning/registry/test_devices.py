"""Devices in the registry."""

from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


def test_a_device_comes_back_as_it_was_kept(tmp_path):
    """By its name and by its serial, after the file was closed."""
    device = Device("pi5-01", "lab", "1000", "pi5", ("coral", "rack-a"), "accepted", "rack-a", 12.5, 5, 6)
    registry = Registry(tmp_path / "registry.sqlite")
    with registry.transaction() as connection:
        devices.put(connection, device)
    registry.close()
    registry = Registry(tmp_path / "registry.sqlite", "read")
    assert devices.read(registry) == [device]
    assert devices.find(registry, "pi5-01") == devices.find_by_serial(registry, "1000") == device
    assert devices.find(registry, "pi5-02") is None
    registry.close()
