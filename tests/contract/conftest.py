"""What the contracts share: a ledger of each kind."""

from tests.fixtures.ledgers import ledger, ledger_place
from tests.fixtures.postgresql import postgresql, postgresql_server

__all__ = ["ledger", "ledger_place", "postgresql", "postgresql_server"]
