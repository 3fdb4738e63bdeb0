"""The sessions of a ledger in PostgreSQL."""

from edgemeter.agent.base.postgres_session import DatabaseUse, PostgresSession


class LedgerSession(PostgresSession):
    """A connection to a ledger; see `PostgresSession`."""

    use = DatabaseUse(
        "ledger",
        absent="make its tables with `edgemeter collector init-ledger --ledger {where}`",
        forbidden="grant it edgemeter_write, or edgemeter_keep, which may also remove records",
    )
