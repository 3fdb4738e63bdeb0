"""The tables and views for SQL are made by init-ledger, and grow with the table of figures."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.cli.main import cli
from edgemeter.collector.cli.collector import _views_hint
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.postgresql import schema
from edgemeter.collector.postgresql.schema import LedgerSession
from edgemeter.collector.sql_views.columns import VIEWS
from edgemeter.collector.sql_views.fill import ViewsFiller
from edgemeter.collector.sql_views.set_up import init_views, position_name
from edgemeter.collector.trend.watch_file import WATCH_FORMAT
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record
from tests.fixtures.sql_ledger import ViewsReader, filled

NEWER = """
import sys, contextlib
from edgemeter.agent.contract import figures
figures.FIGURES += (figures.Figure("made-up share", "Made up", "", "latency", "lower", of=lambda run: run.latency.mean_ms / 100,
    reads=("latency.mean_ms",), name="made_up_ratio"),)
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.collector.postgresql.schema import LedgerSession
from edgemeter.collector.sql_views.fill import ViewsFiller
from edgemeter.collector.sql_views.set_up import init_views
address = PostgresAddress(sys.argv[1])
for _ in range(2):
    with contextlib.closing(LedgerSession(address)) as session:
        print(*init_views(session), sep="\\n")
if sys.argv[2] == "fill":
    with contextlib.closing(ViewsFiller(address)) as filler:
        assert filler.fill()
"""


def prepared(address):
    """Run the steps for the views; return what they report."""
    with contextlib.closing(LedgerSession(address)) as session:
        return init_views(session)


def newer(address, *arguments):
    """Do the same as a version with one more figure does."""
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", NEWER, address.text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, timeout=120).stdout


@pytest.mark.postgresql
def test_a_ledger_from_before_gets_them_with_what_it_holds(postgresql_server, postgresql):
    """Until then a collector fills nothing and fails at nothing; then everything is filled in from the beginning."""
    old = PostgresAddress(postgresql)
    with contextlib.closing(LedgerSession(old)) as session:
        schema.init_ledger(session, WATCH_FORMAT.schema)
    assert not filled(old, [make_record(device="pi-1", session=5, seq=seq) for seq in (1, 2)])
    assert "init-ledger" in str(_views_hint(old))
    result = CliRunner().invoke(cli, ["collector", "init-ledger", "--ledger", old.text])
    assert result.exit_code == 0
    assert "filled from the beginning" in result.output
    assert "filled from" not in CliRunner().invoke(cli, ["collector", "init-ledger", "--ledger", old.text]).output
    assert _views_hint(old) is None
    assert filled(old, [make_record(device="pi-1", session=5, seq=3)])
    reader = ViewsReader(postgresql_server, old)
    assert reader.query("SELECT seq FROM edgemeter_views.run_figures ORDER BY time, seq") == [{"seq": seq} for seq in (1, 2, 3)]
    reader.close()


@pytest.mark.postgresql
def test_a_new_figure_is_a_new_column_filled_in_for_every_run(lab, reader):
    """Old figures stay readable meanwhile, a view of a user's own stays valid, and the older version fills nothing any more."""
    runs = [make_record(device="pi-1", session=5, seq=seq) for seq in (1, 2)]
    filled(lab, runs)
    with open_ledger(lab) as ledger, ledger.writing() as statements:
        statements.execute("CREATE VIEW mine AS SELECT latency_p50_ms, seq FROM edgemeter_views.run_figures")
    assert newer(lab, "wait").count("filled from the beginning") == 1
    query = "SELECT latency_p50_ms, made_up_ratio FROM edgemeter_views.run_figures ORDER BY seq"
    assert reader.query(query) == [{"latency_p50_ms": run.latency.p50_ms, "made_up_ratio": None} for run in runs]
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(make_record(device="pi-1", session=5, seq=3))])
        assert position_name() not in ledger.positions()
    with contextlib.closing(ViewsFiller(lab)) as older:
        assert not older.fill()
    newer(lab, "fill")
    ratio = runs[0].latency.mean_ms / 100
    assert reader.query(query) == [{"latency_p50_ms": run.latency.p50_ms, "made_up_ratio": ratio} for run in [*runs, runs[0]]]
    with open_ledger(lab) as ledger:
        assert len(ledger.query("SELECT * FROM mine")) == 3


@pytest.mark.postgresql
def test_who_goes_back_to_an_older_version_has_its_columns_filled(lab, reader):
    """A view of ours that loses a column is made again."""
    filled(lab, [make_record(device="pi-1", session=5, seq=1)])
    newer(lab, "fill")
    assert any("filled from the beginning" in step for step in prepared(lab))
    assert filled(lab, [make_record(device="pi-1", session=5, seq=2)])
    rows = reader.query("SELECT * FROM edgemeter_views.run_figures")
    assert len(rows) == 2
    assert "made_up_ratio" not in rows[0]


@pytest.mark.postgresql
def test_without_the_right_to_make_a_schema_the_step_names_what_an_administrator_does(postgresql_server, postgresql):
    """The ledger's tables are made all the same; afterwards the same user makes the views."""
    database = postgresql.rpartition("/")[2]
    postgresql_server.sql("DROP ROLE IF EXISTS tenant")
    postgresql_server.sql("CREATE ROLE tenant LOGIN CREATEROLE")
    postgresql_server.sql("GRANT CREATE ON SCHEMA public TO tenant", database)
    tenant = PostgresAddress(postgresql.replace("edgemeter@", "tenant@"))
    with contextlib.closing(LedgerSession(tenant)) as session:
        schema.init_ledger(session, WATCH_FORMAT.schema)
    steps = prepared(tenant)
    assert any("CREATE SCHEMA edgemeter_views AUTHORIZATION" in step for step in steps)
    postgresql_server.sql("CREATE SCHEMA edgemeter_views AUTHORIZATION tenant", database)
    assert prepared(tenant) == ["the role edgemeter_read may read the views in edgemeter_views"]
    postgresql_server.sql("DROP OWNED BY tenant", database)
    postgresql_server.sql("DROP ROLE tenant")


def test_no_view_has_a_column_twice():
    """A figure's name, its bounds and the fields of the case are told apart."""
    for name, view in VIEWS.items():
        names = [column.name for column in view.columns]
        assert len(set(names)) == len(names), name
        assert all(column.meaning for column in view.columns), name
