import json
import sqlite3
import time

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare import columns
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.index.index_file import remove_index
from edgemeter.collector.index.run_index import open_index
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web import context, queries, site
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ServedLinks, ViewRequest
from tests.fixtures.comparison_factory import make_reference, make_run, no_energy
from tests.fixtures.ledgers import fill
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import STARTED_AT_NS, make_energy, violating
from tests.fixtures.rows import table_row

INVALID = violating("invalid", "clock")


def mixed_runs():
    """Return runs of several cases: disturbed, invalid, without energy, of another meter, published, net not resolved."""
    disturbed = violating("disturbed", "busy-machine")
    unresolved = make_energy(gross_mj=70.0, net_mj=None, net_u_mj=None)
    published = {"latency": "measured", "energy": "published", "accuracy": "measured"}
    varied = [
        *(make_run(p50_ms=10.0 + index, started_at_ns=STARTED_AT_NS + index * NS_PER_DAY) for index in range(7)),
        make_run(p50_ms=99.0, verdict=INVALID),
        make_run(device="pi-2", p50_ms=11.0, verdict=disturbed),
        make_run(device="pi-2", p50_ms=12.0, energy=unresolved),
        make_run(device="pi-3", **no_energy()),
        make_run(device="pi-3", p50_ms=8.0, provenance=published),
        make_run(device="pi-4", energy=make_energy(sensor="ina226", gross_mj=50.0)),
        make_run(device="pi-4", energy=make_energy(gross_mj=40.0, gross_u_mj=None), started_at_ns=STARTED_AT_NS + 1),
        make_run(device="pi-5", p50_ms=None, ap=None),
    ]
    return [*varied, *(make_reference(p50_ms=2.0 + index / 10) for index in range(4))]


@pytest.fixture
def mixed(tmp_path):
    """Return the path of a ledger with all of them, and its index."""
    path = fill(tmp_path / "ledger.sqlite", mixed_runs())
    index = open_index(LedgerSource(path))
    index.refresh()
    return path, index


def rows_of(comparison):
    """Return the rows of a comparison as `--format json` has them: every figure, reason, mark and run."""
    return json.loads(columns.to_json(comparison))["rows"]


def test_the_index_gives_the_same_comparison_as_reading_every_run(mixed):
    """Figure for figure: means, intervals, energies, decisions."""
    path, index = mixed
    by_runs = compare(LedgerStore(path).contents(), "reference")
    with index.reading() as connection:
        view_context = ViewContext(connection, index.source, ServedLinks(), TrendEvents())
        by_index = context.compare(view_context, queries.cases(connection, CaseFilter()), CaseFilter(), "reference")
        assert rows_of(by_index) == rows_of(by_runs)


def test_what_comes_later_is_taken_in_and_nothing_twice(mixed):
    """A case is summed up again, the others stay as they are."""
    path, index = mixed
    before = index.position()
    fresh = msgspec.structs.replace(make_run(p50_ms=30.0), session=8, seq=1)
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(fresh, record.encode(fresh), "edgemeter/v1/lab/pi-1/result", time.time_ns())])
    assert index.refresh() == index.refresh() == before + 1
    with index.reading() as connection:
        (case,) = queries.cases(connection, CaseFilter(device="pi-1"))
        assert (case.runs, case.usable) == (9, 8)
        (summary,) = queries.summaries(connection, [case], CaseFilter())
        assert (summary.p50_ms.runs, max(run.value for run in summary.run_values.of("latency_p50_ms"))) == (8, 30.0)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (before + 1,)


def test_another_ledger_at_the_same_place_is_read_anew(mixed):
    """A ledger that was restored or begun again does not show the runs of the one before."""
    path, _ = mixed
    for file in path.parent.glob("ledger.sqlite*"):
        if not file.name.startswith("ledger.sqlite.index"):
            file.unlink()
    fill(path, [make_run(device="pi-9")])
    reopened = open_index(LedgerSource(path))
    reopened.refresh()
    with reopened.reading() as connection:
        assert queries.choices(connection)["device"] == ["pi-9"]


def test_a_file_in_its_place_is_made_anew(tmp_path):
    """An empty or a foreign file: an index holds nothing that the ledger does not."""
    path = fill(tmp_path / "ledger.sqlite", [make_run()])
    index_file = tmp_path / "ledger.sqlite.index"
    for content in (b"", b"no database at all, and longer than a header of SQLite would be" * 20):
        with table_row(content[:20]):
            remove_index(index_file)
            index_file.write_bytes(content)
            index = open_index(LedgerSource(path))
            index.refresh()
            assert index.position() == 1
            assert (index.path, index_file.read_bytes()[:6]) == (index_file, b"SQLite")
            index.close()


def test_runs_that_the_ledger_removed_are_removed(tmp_path):
    """Their cases are summed up again without them; a case of which nothing is left is gone."""
    path, day_ns = tmp_path / "ledger.sqlite", NS_PER_DAY
    with SqliteLedger(path) as ledger:
        for seq, (day, run) in enumerate([(1, make_run(p50_ms=10.0)), (1, make_run(device="pi-2")), (100, make_run(p50_ms=12.0))]):
            numbered = msgspec.structs.replace(run, session=1, seq=seq)
            ledger.commit([Arrival(numbered, record.encode(numbered), "edgemeter/v1/lab/pi-1/result", day * day_ns)])
    index = open_index(LedgerSource(path))
    index.refresh()
    with SqliteLedger(path) as ledger:
        assert ledger.forget(Retention(records_days=50), 101 * day_ns).records == 2
    index.refresh()
    with index.reading() as connection:
        (case,) = queries.cases(connection, CaseFilter())
        assert (case.key.device, case.runs, case.latency_p50_ms) == ("pi-1", 1, 12.0)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_database_of_somebody_else_is_left_alone(tmp_path):
    """Its table is still there."""
    path = fill(tmp_path / "ledger.sqlite", [make_run()])
    other = sqlite3.connect(tmp_path / "ledger.sqlite.index")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    index = open_index(LedgerSource(path))
    index.refresh()
    assert index.position() == 1
    assert other.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    other.close()
    index.close()


def test_a_period_holds_the_runs_of_that_period_only(mixed):
    """Of seven days the runs from the newest back; a case without any is not there."""
    _, index = mixed
    with index.reading() as connection:
        all_days = {case.key.device: case.runs for case in queries.cases(connection, CaseFilter())}
        late = {case.key.device: case.runs for case in queries.cases(connection, CaseFilter(days=7))}
    assert all_days["pi-1"] == 8
    assert late["pi-1"] == 8
    with index.reading() as connection:
        newest = connection.execute("SELECT max(started_at_ns) FROM runs").fetchone()[0]
        assert queries.since_ns(connection, 7) == newest - 7 * NS_PER_DAY


def test_a_case_whose_level_changed_shows_the_level_now_and_since_when(tmp_path):
    """The page's figures are those of `compare`, with the reason; `level=all` counts every run; counts of runs stay whole."""
    runs = level_runs(stepped_ms(60, 40, 1.1), firmwares=["1"] * 40 + ["2"] * 20)
    path = fill(tmp_path / "ledger.sqlite", [*runs, *level_runs(stepped_ms(60, 60, 1.0, level=2.0), device="server-1", role="reference")])
    index = open_index(LedgerSource(path))
    index.refresh()
    contents = LedgerStore(path).contents()
    with index.reading() as connection:
        view_context = ViewContext(connection, index.source, ServedLinks(), TrendEvents())
        for fields, days in (({}, "current"), ({"level": "all"}, "all")):
            case_filter = queries.parse_filter(fields)
            by_index = context.compare(view_context, queries.cases(connection, case_filter), case_filter, "reference")
            by_runs = compare(contents, "reference", days=days)
            assert rows_of(by_index) == rows_of(by_runs)
        view = site.show(view_context, ViewRequest("compare", {"baseline": "reference"}))
        assert "firmware 1 to 2 (p50 +" in view.body
        assert "40 earlier runs left out" in view.body
        assert "earlier runs" not in site.show(view_context, ViewRequest("compare", {"baseline": "reference", "level": "all"})).body
        (recent,) = queries.cases(connection, CaseFilter(device="pi-1", days=30))
        assert (recent.usable, len(queries.summaries(connection, [recent], CaseFilter(days=30))[0].runs)) == (30, 20)
        assert "120 runs of 2 cases" in site.show(view_context, ViewRequest("overview")).lead
    with pytest.raises(ConfigError, match="level='some' is unknown"):
        queries.parse_filter({"level": "some"})
