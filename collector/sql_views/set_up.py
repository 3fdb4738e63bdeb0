"""The tables and views for SQL: their making, and their upgrade where a column is new."""

from collections.abc import Iterable, Sequence

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.ledger.chunks import IDENTITY_MARK
from edgemeter.collector.postgresql.schema import LedgerSession
from edgemeter.collector.sql_views.columns import CONTEXT_COLUMNS, DEVICE_COLUMNS, RUN_COLUMNS, VIEWS, SqlColumn, layout

SCHEMA = "edgemeter_views"
# The position of the views among those of the sinks; its name says for which columns.
SINK = "sql views"
# One at a time. Source: any number that no other program of the database uses.
_LOCK = 0x45645677
# As the ledger's: sorted by bytes. Texts of two collations cannot be compared.
_TEXT = 'text COLLATE "C"'
_TYPE = {"text": _TEXT}
# A run that leaves the ledger takes its figures with it, as does a device.
TABLES = (
    ("sql_contexts", "context bigint PRIMARY KEY", CONTEXT_COLUMNS),
    ("sql_runs", "row bigint PRIMARY KEY REFERENCES runs (row) ON DELETE CASCADE, context bigint NOT NULL", RUN_COLUMNS),
    (
        "sql_devices",
        f"fleet {_TEXT}, device {_TEXT}, PRIMARY KEY (fleet, device), FOREIGN KEY (fleet, device) REFERENCES presence ON DELETE CASCADE",
        DEVICE_COLUMNS,
    ),
)
_OTHERS = f"""CREATE INDEX IF NOT EXISTS sql_runs_by_time ON sql_runs (time);
CREATE TABLE IF NOT EXISTS sql_changes (at_ns bigint, fleet {_TEXT}, device {_TEXT}, kind {_TEXT}, text {_TEXT})"""
_RIGHTS = """GRANT SELECT, INSERT, UPDATE ON sql_contexts, sql_runs, sql_devices TO edgemeter_write;
GRANT SELECT, INSERT, DELETE ON sql_changes TO edgemeter_write"""
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position"


def position_name() -> str:
    """Return the name of the position of the views with the columns of this version."""
    return f"{SINK}{IDENTITY_MARK}{layout()}"


def init_views(session: LedgerSession) -> list[str]:
    """Create the tables and views, or add what is new to them; return what was done. Call it after `init_ledger`, as the same user.

    Where a column is new, every row is filled in again; until then it is NULL in older ones.

    Raises:
        ConfigError: there is no ledger, or this user may not change its tables.
        UnavailableError: the server does not answer.
    """
    steps = []
    with session.transaction() as statements:
        statements.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
        if statements.execute("SELECT 1 FROM sinks WHERE name = ?", (position_name(),)).fetchone() is None:
            for name, head, columns in TABLES:
                statements.execute(f"CREATE TABLE IF NOT EXISTS {name} ({head})")
                added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column.name} {_TYPE.get(column.kind, column.kind)}" for column in columns)
                statements.execute(f"ALTER TABLE {name} {added}")
            statements.execute(_OTHERS)
            statements.execute("DELETE FROM sinks WHERE name LIKE ?", (f"{SINK}{IDENTITY_MARK}%",))
            statements.execute("INSERT INTO sinks VALUES (?, 0)", (position_name(),))
            steps.append("the tables for SQL are filled from the beginning by a collector that runs")
    try:
        with session.transaction() as statements:
            statements.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
            _make_views(statements)
        steps.append(f"the role edgemeter_read may read the views in {SCHEMA}")
    except EdgemeterError as error:
        remedy = f"an administrator does it with: CREATE SCHEMA {SCHEMA} AUTHORIZATION (this user); then init-ledger again"
        steps.append(f"the views in {SCHEMA} are not set up ({error.__cause__ or error}); {remedy}")
    return steps


def _make_views(statements: Statements) -> None:
    if statements.execute("SELECT to_regnamespace(?)", (SCHEMA,)).fetchone()[0] is None:
        statements.execute(f"CREATE SCHEMA {SCHEMA}")
    for name, view in VIEWS.items():
        present = [column for (column,) in statements.execute(_COLUMNS, (SCHEMA, name)).fetchall()]
        # What selects from a view stays valid: its columns keep their order, and new ones follow.
        columns = {column.name: column for column in view.columns}
        if not columns.keys() >= set(present):
            statements.execute(f"DROP VIEW {SCHEMA}.{name}")
            present = []
        ordered = [columns[name] for name in dict.fromkeys((*present, *columns))]
        statements.execute(f"CREATE OR REPLACE VIEW {SCHEMA}.{name} AS SELECT {_selected(ordered)} FROM {view.source}")  # noqa: S608
    statements.execute(_RIGHTS)
    statements.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO edgemeter_read; GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO edgemeter_read")


def _selected(columns: Iterable[SqlColumn]) -> str:
    return ", ".join(f"{column.expression} AS {column.name}" if column.expression else column.name for column in columns)


def upsert(table: str, key: Sequence[str], columns: Sequence[SqlColumn]) -> str:
    """Return the statement that inserts rows, given as an array of each column, or gives those that are there the same values."""
    names = ", ".join(column.name for column in columns)
    arrays = ", ".join(f"?::{column.kind}[]" for column in columns)
    assigned = ", ".join(f"{column.name} = excluded.{column.name}" for column in columns if column.name not in key)
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT ({', '.join(key)}) DO UPDATE SET {assigned}"  # noqa: S608
