"""The registry's file: one of another version ends in one clear line."""

import contextlib
import sqlite3
from itertools import product

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.messages import Activity, Measuring
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row


def test_a_registry_of_another_version_is_refused_and_left_alone(tmp_path):
    """A newer one, and one that nobody ever made."""
    for (version, remedy), access in product(
        ((3, "has version 3, this edgemeter knows up to 2: update edgemeter here"), (0, "has version 0, which cannot be migrated to 2")),
        ("read", "write"),
    ):
        with table_row(version, remedy, access):
            path = tmp_path / f"{version}-{access}.sqlite"
            Registry(path).close()
            connection = sqlite3.connect(path)
            connection.execute(f"PRAGMA user_version = {version}")
            connection.close()
            with pytest.raises(ConfigError, match=remedy):
                Registry(path, access)
            connection = sqlite3.connect(path)
            assert connection.execute("PRAGMA user_version").fetchone() == (version,)
            connection.close()


def test_a_registry_of_the_first_version_learns_what_devices_measure(tmp_path):
    """What it held stays; a report of an activity is kept beside it."""
    path = tmp_path / "registry.sqlite"
    Registry(path).close()
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("ALTER TABLE presence DROP COLUMN activity")
        old.execute("ALTER TABLE presence DROP COLUMN activity_ns")
        old.execute("INSERT INTO presence (device, fleet, state, session, since_ns, heard_ns) VALUES ('pi-1', 'lab', 'online', 5, 1, 1)")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    measuring = Measuring(suite="s", case="c", run=1, runs=2)
    with contextlib.closing(Registry(path)) as registry:
        assert devices.read_presence(registry)["pi-1"].measuring is None
        with registry.transaction() as connection:
            devices.put_reports(connection, [devices.DeviceReport("pi-1", "lab", Activity(session=5, measuring=measuring), 7)])
        found = devices.read_presence(registry)["pi-1"]
    assert (found.state, found.measuring, found.activity_ns) == ("online", measuring, 7)
