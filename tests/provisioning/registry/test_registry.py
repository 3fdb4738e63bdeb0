"""The registry's file: one of another version ends in one clear line."""

import sqlite3
from itertools import product

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.rows import table_row


def test_a_registry_of_another_version_is_refused_and_left_alone(tmp_path):
    """A registry of a newer or an older version is refused and left unchanged."""
    for (version, remedy), access in product(
        (
            (8, "has version 8, this edgemeter needs 7: move it away"),
            (1, "has version 1, this edgemeter needs 7: move it away"),
        ),
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
