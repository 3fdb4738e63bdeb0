"""Test the shipped dashboards and alert rules.

Every query of theirs is sent to the real InfluxDB, and every field has its unit.
"""

import json
import re
import statistics
import time

import msgspec
import pytest
import yaml

from edgemeter.agent.contract import record
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.figures import FIGURES, field_name
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import DEPLOY_FILES
from edgemeter.collector.influx import points
from edgemeter.collector.influx.points import case_hash
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend.changes import change_point_line, changes_of, noted_changes
from edgemeter.collector.trend.history import History
from tests.fixtures.case_twins import BAND, COUNTS, twins
from tests.fixtures.draining import drained
from tests.fixtures.fleet_ledger import Fleet, fleet_records
from tests.fixtures.health_factory import make_health
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

GRAFANA = DEPLOY_FILES / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
# No id of Grafana's for millijoules: `si:mJ` scales from milli by itself.
UNITS = {"ms", "si:mJ", "watt", "decmbytes", "short", "none", "suffix: / s"}
KINDS = {"timeseries", "state-timeline", "table", "xychart"}
RANGE = "time >= '2020-01-01T00:00:00Z' AND time <= '2030-01-01T00:00:00Z'"


def dashboard(path):
    return json.loads(path.read_text())


def queries(document):
    """Return the title and query of every target of a dashboard.

    Its annotations and variables are among them.
    """
    queries_of_panels = [
        (panel["title"], target["query"])
        for panel in document["panels"]
        for target in panel["targets"]
    ]
    queries_of_panels += [
        (f"annotation {annotation['name']}", annotation["target"]["query"])
        for annotation in document["annotations"]["list"]
    ]
    return queries_of_panels + [
        (f"variable {variable['name']}", variable["query"])
        for variable in document["templating"]["list"]
        if variable["type"] == "query"
    ]


def filled_in(query, **values):
    """Return a query as Grafana sends it: everything chosen, or what `values` says."""
    query = query.replace("$timeFilter", RANGE).replace("$__interval", "1h")
    return re.sub(r"\$([a-z]+)", lambda match: values.get(match[1], ".*"), query)


def with_bounds(run):
    value = run.accuracy.value
    return msgspec.structs.replace(
        run, accuracy=msgspec.structs.replace(run.accuracy, low=value - 0.03, high=value + 0.02)
    )


def expected_band(title, runs):
    """Return what the three series of a band show day by day, by their names."""
    ends = {
        "Accuracy": lambda run: (run.accuracy.low, run.accuracy.value, run.accuracy.high),
        "Gross energy an inference": lambda run: tuple(
            run.energy.gross_mj + sign * run.energy.gross_u_mj for sign in (-1, 0, 1)
        ),
        "Net energy an inference": lambda run: tuple(
            run.energy.net_mj + sign * run.energy.net_u_mj for sign in (-1, 0, 1)
        ),
    }[title.removesuffix(BAND)]
    by_day = grouped((run.started_at_ns // DAY_NS, ends(run)) for run in runs)
    days = [
        [statistics.median(values) for values in zip(*of_day, strict=True)]
        for of_day in by_day.values()
    ]
    return dict(zip(("lower", "median", "upper"), zip(*days, strict=True), strict=True))


def alert_rules():
    (group,) = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    return group["rules"]


@pytest.fixture
def filled(influx_place, tmp_path, bucket_of):
    """Return a place with runs of a small fleet, written by our drain.

    The fleet has every verdict, a firmware change and a confirmed step.
    """
    path = tmp_path / "ledger.sqlite"
    runs = [with_bounds(run) for run in fleet_records(Fleet(devices=3, days=2, cases=4))]
    runs[1] = record.decode(record.encode(runs[1]).replace(b'"state":"ok"', b'"state":"invalid"'))
    runs[2] = record.decode(record.encode(runs[2]).replace(b'"state":"ok"', b'"state":"disturbed"'))
    runs += [
        record.decode(
            record.encode(run)
            .replace(b'"firmware":"1"', b'"firmware":"2"')
            .replace(b'"session":2', b'"session":3')
        )
        for run in runs[-4:]
    ]
    with SqliteLedger(path) as ledger:
        reported = (DeviceState(state="online", session=1), make_health())
        presence = [
            PresenceChange("lab", "board-0001", message, time.time_ns()) for message in reported
        ]
        ledger.commit([arrived(run, record.encode(run), "t", 7) for run in runs], (), presence)
    drained(path, bucket_of(influx_place.config()), status_every_s=60.0)
    changes = changes_of(runs)
    assert changes
    step = (
        'change,device=board-0002,fleet=lab,kind=step text="gross energy +5%" '
        f"{runs[-1].started_at_ns}"
    )
    bucket_of(influx_place.config()).write([*map(change_point_line, changes), step])
    return influx_place


def test_every_query_of_a_dashboard_or_an_alert_rule_returns_data(filled):
    """Each panel, annotation, variable and rule gets data from a real InfluxDB 2.

    It does with everything chosen, and with some devices and models.
    """
    narrowed = {
        "device": "board-0001|board-0002|server-1",
        "model": "tiny-detector|small-detector",
        "precision": "(fp32|int8)",
    }
    of_rules = [
        (rule["uid"], step["model"]["query"])
        for rule in alert_rules()
        for step in rule["data"]
        if "query" in step["model"]
    ]
    for title, query in [
        *of_rules,
        *(entry for path in DASHBOARDS for entry in queries(dashboard(path))),
    ]:
        for picked in ({}, narrowed):
            rows = filled.query(filled_in(query, **picked))
            assert any(
                value is not None for row in rows for name, value in row.items() if name != "time"
            ), (title, query)


def test_a_band_lies_between_the_bounds_that_the_records_have(influx_place, bucket_of, tmp_path):
    """The band equals the daily medians that Python computes from the records.

    They are those of values and of both bounds, of the chosen case on the chosen device.
    """
    runs = [with_bounds(run) for run in fleet_records(Fleet(devices=2, days=3, cases=2))]
    repeats = [
        msgspec.structs.replace(
            run,
            session=99,
            seq=number,
            id=f"again {number}",
            started_at_ns=run.started_at_ns + 30 * 10**9,
        )
        for number, run in enumerate(runs[:4], 1)
    ]
    runs += [
        msgspec.structs.replace(run, energy=make_energy(gross_mj=70.0, gross_u_mj=4.0))
        for run in repeats
    ]
    drained(fill(tmp_path / "ledger.sqlite", runs), bucket_of(influx_place.config()))
    panels = [
        panel
        for path in DASHBOARDS
        for panel in dashboard(path)["panels"]
        if panel["title"].endswith(BAND)
    ]
    assert len(panels) > 1
    newest_case = next(run for run in runs if run.device == "board-0001")
    for panel in panels:
        title = panel["title"]
        expected = expected_band(
            title,
            [
                run
                for run in runs
                if (run.device, key_of(run)) == (newest_case.device, key_of(newest_case))
            ],
        )
        for target in panel["targets"]:
            names = {
                "case": case_hash(key_of(newest_case)),
                "single": newest_case.device,
                "device": newest_case.device,
            }
            rows = influx_place.query(
                filled_in(target["query"].replace("$__interval", "1d"), **names)
            )
            values = [
                value
                for row in rows
                for name, value in row.items()
                if name == "median" and value is not None
            ]
            assert sorted(values) == pytest.approx(sorted(expected[target["alias"]])), (
                title,
                target["alias"],
            )
        overrides = {
            override["matcher"]["options"]: override["properties"]
            for override in panel["fieldConfig"]["overrides"]
        }
        assert {"id": "custom.fillBelowTo", "value": "lower"} in overrides["upper"]
        assert {target["alias"] for target in panel["targets"]} >= set(overrides)


def test_no_panel_blends_two_cases_or_two_kinds_of_energy(influx_place, bucket_of, tmp_path):
    """Each panel has each run's own figure and no other, under a legend of its own.

    The runs are twins in every field.
    """
    runs = twins()
    drained(fill(tmp_path / "ledger.sqlite", runs.values()), bucket_of(influx_place.config()))
    measured = {run.latency.p50_ms for run in runs.values()}
    looked_at = set()
    for dashboard_path in DASHBOARDS:
        for panel in dashboard(dashboard_path)["panels"]:
            for target in panel["targets"]:
                if (
                    'FROM "run"' not in target["query"]
                    or panel["title"] in COUNTS
                    or panel["title"].endswith(BAND)
                ):
                    continue
                # One step of time for all of them, as on a wide view.
                rows = influx_place.query(filled_in(target["query"].replace("$__interval", "1d")))
                figures = [
                    round(value * 1000, 6) if value < 1 else value
                    for row in rows
                    for name, value in row.items()
                    if name != "time" and isinstance(value, int | float)
                ]
                assert set(figures) <= measured, (panel["title"], set(figures) - measured)
                if "verdict_state" not in re.findall(r"\(\"(\w+)\"", target["query"]):
                    assert set(figures) == measured, (panel["title"], measured - set(figures))
                else:
                    assert len(rows) == len(runs), panel["title"]
                if "alias" in target:
                    legends = {
                        (
                            row["device"],
                            re.sub(
                                r"\$tag_(\w+)", lambda tag, row=row: row[tag[1]], target["alias"]
                            ),
                        )
                        for row in rows
                    }
                    assert len(legends) == len(rows), panel["title"]
                looked_at.add(panel["title"])
    assert len(looked_at) > 10


def test_a_device_that_stopped_is_below_the_threshold_of_its_rule(filled):
    """The mean of the last two days is 0 for a device that sent nothing.

    It is at least a half for one that sent one run today.
    """
    (rule,) = (
        rule_of_file
        for rule_of_file in alert_rules()
        if rule_of_file["uid"] == "edgemeter-silent-device"
    )
    query = rule["data"][0]["model"]["query"]
    first, last = "2024-10-01T00:00:00Z", "2024-10-05T00:00:00Z"
    rows = filled.query(query.replace("$timeFilter", f"time >= '{first}' AND time < '{last}'"))
    newest = {row["device"]: row["moving_average"] for row in rows}
    assert newest == {"board-0001": 0, "board-0002": 0, "server-1": 0}
    today = {
        row["device"]: row["moving_average"]
        for row in filled.query(
            query.replace("$timeFilter", f"time >= '{first}' AND time < '2024-10-03T00:00:00Z'")
        )
    }
    assert min(today.values()) >= 0.5


def test_a_confirmed_step_is_within_the_period_of_its_rule(influx_place, tmp_path, bucket_of):
    """A step is confirmed two weeks after its first day, where its point lies.

    The rule counts the point that the product writes then.
    """
    today = time.time_ns() // DAY_NS
    runs = [
        msgspec.structs.replace(
            run, started_at_ns=run.started_at_ns + (today - FIRST_DAY - 59) * DAY_NS
        )
        for run in make_days(noisy(100, 60, step_at=46, step_ratio=1.1))
    ]
    path = fill(tmp_path / "ledger.sqlite", runs)
    bucket_of(influx_place.config()).write(
        [change_point_line(change) for change in noted_changes(path, History(LedgerStore(path)))]
    )
    (rule,) = (
        rule_of_file
        for rule_of_file in alert_rules()
        if rule_of_file["uid"] == "edgemeter-new-step"
    )
    period = f"time >= now() - {rule['data'][0]['relativeTimeRange']['from']}s AND time <= now()"
    (row,) = influx_place.query(rule["data"][0]["model"]["query"].replace("$timeFilter", period))
    assert row["device"] == "pi-1"
    assert row["count"] > rule["data"][-1]["model"]["conditions"][0]["evaluator"]["params"][0]


def test_a_dashboard_is_whole():
    """Ids are unique, nothing overlaps, and every variable is defined.

    Every panel has a kind and a unit that Grafana knows.
    """
    for document in map(dashboard, DASHBOARDS):
        panels = document["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        assert {panel["type"] for panel in panels} <= KINDS
        places = [panel["gridPos"] for panel in panels]
        cells = [
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24
        variables = {variable["name"] for variable in document["templating"]["list"]}
        for title, query in queries(document):
            assert set(re.findall(r"\$([a-z]+)", query.replace("$timeFilter", ""))) <= variables, (
                title
            )
        for panel in panels:
            overrides = [
                setting
                for override in panel["fieldConfig"]["overrides"]
                for setting in override["properties"]
            ]
            units = {
                panel["fieldConfig"]["defaults"].get("unit"),
                *(each["value"] for each in overrides if each["id"] == "unit"),
            }
            assert units - {None} <= UNITS, panel["title"]
            assert all(target["refId"] for target in panel["targets"])
            assert all(
                target["datasource"] == {"type": "influxdb", "uid": "${datasource}"}
                for target in panel["targets"]
            )
        for variable in document["templating"]["list"]:
            assert {"text", "value"} <= variable["current"].keys(), (
                "Grafana refuses a current value without both"
            )


def test_a_panel_names_fields_that_a_point_has():
    """A field that was removed from the record would leave an empty panel."""
    names = {
        *points.TAGS,
        *points.CASE_TAGS,
        points.ENERGY_PROVENANCE,
        *map(field_name, points.FACTS),
        "latency",
        "energy",
    }
    names |= {name for entry in FIGURES for name in (entry.name, *entry.bound_names)}
    for path in DASHBOARDS:
        with table_row(path.name):
            of_runs = [query for _, query in queries(dashboard(path)) if 'FROM "run"' in query]
            read = {
                name
                for query in of_runs
                for name in re.findall(r'"(\w+)"', re.sub(r'AS "\w+"', "", query))
            }
            aliases = {name for query in of_runs for name in re.findall(r'AS "(\w+)"', query)}
            assert read - aliases - names == {"run"}


def test_the_provisioning_names_what_ships():
    """Uids in one place are those in another.

    They are those of a rule's dashboard and panel, the data source, and the folder of the
    dashboards.
    """
    (source,) = yaml.safe_load((GRAFANA / "influxdb.yaml").read_text())["datasources"]
    by_uid = {document["uid"]: document for document in map(dashboard, DASHBOARDS)}
    assert len(by_uid) == len(DASHBOARDS) == 4
    for rule in alert_rules():
        ids = {panel["id"] for panel in by_uid[rule["dashboardUid"]]["panels"]}
        assert rule["panelId"] in ids
        assert {query["datasourceUid"] for query in rule["data"]} == {source["uid"], "__expr__"}
        assert rule["condition"] == rule["data"][-1]["refId"]
        references = {query["refId"] for query in rule["data"]}
        assert {
            query["model"]["expression"] for query in rule["data"] if "expression" in query["model"]
        } <= references
        assert rule["noDataState"] in {"NoData", "Alerting", "OK"}
    (provider,) = yaml.safe_load((GRAFANA / "dashboards.yaml").read_text())["providers"]
    mounts = yaml.safe_load((DEPLOY_FILES / "compose.yaml").read_text())["services"]["grafana"][
        "volumes"
    ]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts
    assert any(
        mount.startswith("./grafana/alerts.yaml:/etc/grafana/provisioning/alerting/")
        for mount in mounts
    )
