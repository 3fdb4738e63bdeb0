"""What SQL reads of a ledger in PostgreSQL: every view and column."""

from edgemeter.agent.base.documents import csv_document
from edgemeter.collector.sql_views.columns import VIEWS


def csv_file() -> str:
    """Return every column of every view as CSV, each view after what a row of it is."""
    rows = []
    for name, view in VIEWS.items():
        rows.append([name, "", "", view.meaning])
        rows += [[name, column.name, column.kind, column.meaning] for column in view.columns]
    return csv_document(["view", "column", "type", "meaning"], rows)
