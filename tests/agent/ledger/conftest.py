"""What the tests of the ledger share: PostgreSQL."""

from tests.fixtures.postgresql import postgresql, postgresql_server

__all__ = ["postgresql", "postgresql_server"]
