"""Fixtures of the contracts: a ledger of each kind, and a stack that ends with a test."""

from tests.fixtures.collecting import at_end
from tests.fixtures.ledgers import ledger, ledger_place
from tests.fixtures.postgresql import postgresql, postgresql_server

__all__ = ["at_end", "ledger", "ledger_place", "postgresql", "postgresql_server"]
