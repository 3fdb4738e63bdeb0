"""A registry in a file, and one in a PostgreSQL."""

import pytest

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.postgresql import postgresql, postgresql_server

__all__ = ["postgresql", "postgresql_server"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def registry_place(request, tmp_path):
    """Return the path of a registry, or the address of an empty database for one."""
    if request.param == "sqlite":
        return tmp_path / "registry.sqlite"
    return PostgresAddress(request.getfixturevalue("postgresql"))


@pytest.fixture
def registry(registry_place):
    """Return a registry of each kind in turn."""
    with Registry(registry_place) as opened:
        yield opened
