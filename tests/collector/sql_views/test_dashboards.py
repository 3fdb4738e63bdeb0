"""The dashboards for PostgreSQL: every query of theirs is run by the role that may only read, and its numbers are those of the records."""

import itertools
import json
import re
import statistics
import time
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract import record
from edgemeter.agent.contract.case_identity import case_hash, key_of
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.collector.influx.point_schema import case_tags
from edgemeter.collector.sql_views.fill import write_changes
from edgemeter.collector.trend.changes import changes_of
from tests.fixtures.case_twins import BAND, COUNTS, twins
from tests.fixtures.fleet_ledger import Fleet, fleet_records
from tests.fixtures.grafana import expanded
from tests.fixtures.health_factory import make_health
from tests.fixtures.rows import table_row
from tests.fixtures.sql_dashboards import DATASOURCE, GRAFANA, SOURCE, TARGET, dashboard_text
from tests.fixtures.sql_ledger import filled

ROOT = Path(__file__).resolve().parents[3]
DASHBOARDS = sorted(TARGET.glob("*.json"))


def dashboard(path):
    """Return a dashboard as it ships."""
    return json.loads(path.read_text())


def panels():
    """Yield every panel with each of its queries."""
    for path in DASHBOARDS:
        for panel in dashboard(path)["panels"]:
            for target in panel["targets"]:
                yield panel, target["rawSql"]


def queries(document):
    """Return the title and query of every target of a dashboard, its annotations and variables among them."""
    texts = [(panel["title"], target["rawSql"]) for panel in document["panels"] for target in panel["targets"]]
    texts += [(f"annotation {annotation['name']}", annotation["target"]["rawSql"]) for annotation in document["annotations"]["list"]]
    variables = [variable for variable in document["templating"]["list"] if variable["type"] == "query"]
    return texts + [(f"variable {variable['name']}", variable["query"]) for variable in variables]


def of_verdict(run, verdict):
    """Return the run with another verdict."""
    return record.decode(record.encode(run).replace(b'"state":"valid"', f'"state":"{verdict}"'.encode()))


def with_bounds(run):
    """Return the run with bounds of its accuracy."""
    value = run.accuracy.value
    return msgspec.structs.replace(run, accuracy=msgspec.structs.replace(run.accuracy, low=value - 0.03, high=value + 0.02))


@pytest.fixture
def fleet(lab):
    """Return the runs of a small fleet of every verdict, two days long, filled in; one board has changed its firmware."""
    runs = [with_bounds(run) for run in fleet_records(Fleet(devices=3, days=2, cases=4))]
    runs[1], runs[2] = of_verdict(runs[1], "invalid"), of_verdict(runs[2], "suspect")
    runs += [
        record.decode(record.encode(run).replace(b'"firmware":"1"', b'"firmware":"2"').replace(b'"session":2', b'"session":3'))
        for run in runs[-4:]
    ]
    reported = (DeviceState(state="online", session=1), make_health())
    filled(lab, runs, [PresenceChange("lab", "board-0001", message, time.time_ns()) for message in reported])
    write_changes(lab, changes_of(runs))
    return runs


def test_every_dashboard_is_made_from_that_for_influxdb():
    """The same panels: `python -m tests.fixtures.sql_dashboards` writes them."""
    assert [path.name for path in DASHBOARDS] == [path.name for path in sorted(SOURCE.glob("*.json"))]
    for path in DASHBOARDS:
        with table_row(path.name):
            assert path.read_text() == dashboard_text(SOURCE / path.name)


@pytest.mark.postgresql
@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_returns_data(reader, path):
    """Of each panel, annotation and variable, with everything chosen and with one device and model."""
    picked = {
        "fleet": ["lab"], "device": ["board-0001", "board-0002", "server-1", "o'board"], "model": ["tiny-detector", "small-detector"],
        "precision": ["fp32", "int8"], "scenario": ["single_stream"],
    }  # fmt: skip
    for title, query in queries(dashboard(path)):
        for values in ({}, picked):
            with table_row((title, values)):
                rows = reader.query(expanded(query, **values))
                cells = [value for row in rows for name, value in row.items() if name != "time"]
                assert any(value is not None for value in cells)


@pytest.mark.postgresql
@pytest.mark.usefixtures("lab")
def test_an_empty_ledger_is_no_error(reader):
    """Nothing to draw, where everything is chosen."""
    for path in DASHBOARDS:
        for title, query in queries(dashboard(path)):
            with table_row(title):
                rows = reader.query(expanded(query))
                assert rows in ([], [{"value": 0}]) or "sink_lag" in query


@pytest.mark.postgresql
def test_no_panel_blends_two_cases_or_two_kinds_of_energy(lab, reader):
    """Of twins in every field: each panel has each run's own figure and no other, under a legend of its own."""
    runs = twins()
    filled(lab, runs.values())
    measured = {run.latency.p50_ms for run in runs.values()}
    looked_at = set()
    for panel, query in panels():
        if "run_figures" not in query or panel["title"] in COUNTS or panel["title"].endswith(BAND):
            continue
        rows = reader.query(expanded(query, interval="1d"))
        figures = {
            round(value * 1000, 6) if value < 1 else value
            for row in rows
            for name, value in row.items()
            if name != "time" and isinstance(value, float)
        }
        assert figures <= measured, (panel["title"], figures - measured)
        assert len(rows) == len(runs), panel["title"]
        if panel["type"] != "state-timeline":
            assert figures == measured, (panel["title"], measured - figures)
        if "metric" in rows[0]:
            # A dashboard of one device draws no other, and so does not name it.
            distinct = len(runs) if " device," in query.split("AS metric")[0] else len(runs) - 1
            assert len({row["metric"] for row in rows}) == distinct, panel["title"]
        looked_at.add(panel["title"])
    assert len(looked_at) > 15


@pytest.mark.postgresql
def test_the_medians_of_a_day_are_those_of_the_records(fleet, reader):
    """Worked out from the records by Python's own median, case by case; invalid runs have no part."""
    for title, value_of in (
        ("Latency, p50", lambda run: run.latency.p50_ms),
        ("Net energy an inference, day by day", lambda run: run.energy.net_mj),
    ):
        (query, *_) = [query for panel, query in panels() if panel["title"] == title]
        expected = {}
        for run in fleet:
            if run.verdict.state != "invalid":
                name = (run.started_at_ns // (86_400 * 10**9) * 86_400, run.device, case_tags(run)[0])
                expected.setdefault(name, []).append(value_of(run))
        assert any(len(values) > 1 for values in expected.values())
        sql = expanded(query, interval="1d").replace(' AS "time", ', ' AS "time", device, case_hash, ')
        drawn_values = {(int(row["time"]), row["device"], row["case_hash"]): row["value"] for row in reader.query(sql)}
        assert drawn_values == pytest.approx({name: statistics.median(values) for name, values in expected.items()})


@pytest.mark.postgresql
def test_a_band_has_the_bounds_of_the_records(fleet, reader):
    """Of the gross energy: the medians of a day of value minus and plus its uncertainty, of the chosen case and device."""
    queries_of = [query for panel, query in panels() if panel["title"] == f"Gross energy an inference{BAND}" and "IN (${single" in query]
    example = next(run for run in fleet if run.device == "board-0001" and run.verdict.state == "valid")
    same = [run for run in fleet if (run.device, key_of(run)) == (example.device, key_of(example)) and run.verdict.state != "invalid"]
    by_day = {run.started_at_ns // NS_PER_DAY: [] for run in same}
    for run in same:
        by_day[run.started_at_ns // NS_PER_DAY].append(run.energy)
    picked = {"case": [case_hash(key_of(example))], "single": [example.device]}
    assert len(queries_of) == 3
    for query, sign in zip(queries_of, (0, -1, 1), strict=True):
        values = sorted(row["value"] for row in reader.query(expanded(query, **picked)))
        bounds = [statistics.median(energy.gross_mj + sign * energy.gross_u_mj for energy in of_day) for of_day in by_day.values()]
        assert values == pytest.approx(sorted(bounds))


@pytest.mark.postgresql
def test_the_newest_run_of_each_case_and_the_counts_are_those_of_the_records(fleet, reader):
    """A table takes the whole row of one run; the numbers of runs are by verdict."""
    queries_of = {panel["title"]: query for panel, query in panels()}
    newest = {}
    for run in sorted(fleet, key=lambda run: run.started_at_ns):
        if run.verdict.state != "invalid":
            newest[run.environment.board, key_of(run), case_tags(run)[1]] = run
    rows = reader.query(expanded(queries_of["The newest run of each case"]))
    assert sorted((row["p50"], row["gross energy"], row["accuracy"], row["verdict"]) for row in rows) == sorted(
        (run.latency.p50_ms, run.energy.gross_mj, run.accuracy.value, run.verdict.state) for run in newest.values()
    )
    counts = {"Runs": len(fleet), "Suspect runs": 1, "Invalid runs": 1, "Devices with results": 3}
    for title, count in counts.items():
        assert reader.query(expanded(queries_of[title])) == [{"value": count}], title


@pytest.mark.postgresql
@pytest.mark.usefixtures("fleet")
def test_presence_is_drawn_from_when_it_was_received(reader):
    """Or from the beginning of what is looked at."""
    (query,) = [query for panel, query in panels() if panel["title"] == "Presence"]
    (now,) = reader.query(expanded(query))
    (later,) = reader.query(expanded(query, since="2029-01-01T00:00:00Z"))
    assert now["value"] == later["value"] == "online"
    assert now["time"].timestamp() == pytest.approx(time.time(), abs=600)
    assert later["time"].year == 2029


@pytest.mark.postgresql
def test_the_example_of_the_documentation_gives_the_median_of_each_case(lab, reader):
    """As it stands on the page; of the runs of the last 90 days."""
    (query,) = re.findall(r"```sql\n(.+?)```", (ROOT / "docs" / "tasks" / "shared-ledger.md").read_text(), re.DOTALL)
    runs = list(fleet_records(Fleet(devices=2, days=3, cases=2)))
    days_later = (time.time_ns() - runs[-1].started_at_ns) // NS_PER_DAY
    runs = [msgspec.structs.replace(run, started_at_ns=run.started_at_ns + days_later * NS_PER_DAY) for run in runs]
    filled(lab, runs)
    latencies = {}
    for run in runs:
        latencies.setdefault((run.fleet, run.device, run.model.name, *case_tags(run)[:2]), []).append(run.latency.p50_ms)
    medians = {tuple(row.values())[:5]: row["p50_ms"] for row in reader.query(query)}
    assert medians == {name: statistics.median(values) for name, values in latencies.items()}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_names_its_variables_and_one_data_source(path):
    """Every variable of a query is defined; panels, variables and annotations ask the data source that is chosen."""
    document = dashboard(path)
    variables = {variable["name"] for variable in document["templating"]["list"]}
    for title, query in queries(document):
        assert set(re.findall(r"\$\{(\w+)", query)) <= variables, title
        assert not re.search(r"\$(?!\{|__)", query), title
    sources = [target["datasource"] for panel in document["panels"] for target in (panel, *panel["targets"])]
    sources += [variable["datasource"] for variable in document["templating"]["list"] if variable["type"] == "query"]
    assert all(
        source == DATASOURCE for source in itertools.chain(sources, (entry["datasource"] for entry in document["annotations"]["list"]))
    )


def test_the_data_source_is_the_one_that_the_dashboards_name():
    """Provisioned by the file that ships, as a user of the views only, with the server's certificate checked."""
    yaml = pytest.importorskip("yaml")
    (source,) = yaml.safe_load((GRAFANA / "postgresql.yaml").read_text())["datasources"]
    assert source["type"] == DATASOURCE["type"]
    assert source["jsonData"]["sslmode"] == "verify-full"
    for path in DASHBOARDS:
        assert dashboard(path)["templating"]["list"][0]["current"]["value"] == source["uid"]
