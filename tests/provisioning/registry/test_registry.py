"""The registry's file: one of another version ends in one clear line."""

import sqlite3

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.registry.registry import Registry


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(2, "has version 2, this edgemeter knows up to 1: update edgemeter here"), (0, "has version 0, which cannot be migrated to 1")],
)
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_registry_of_another_version_is_refused_and_left_alone(tmp_path, version, remedy, access):
    """A newer one, and one that nobody ever made."""
    path = tmp_path / "registry.sqlite"
    Registry(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(ConfigError, match=remedy):
        Registry(path, access)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    connection.close()
