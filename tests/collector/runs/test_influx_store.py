"""Facts about an InfluxDB as a store of runs: real ones of both versions."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record_conditions
from edgemeter.collector.cli.compare import compare
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.sink import open_sink
from edgemeter.collector.runs.store import InfluxStore, open_store
from tests.fixtures.comparison_factory import make_reference, make_run, no_energy
from tests.fixtures.draining import drained
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import violating


def fleet():
    """Return runs of a fleet as a comparison meets them: repeats, doubts, other precisions, no energy, no accuracy, an invalid run."""
    runs = [make_reference(p50_ms=2.0 + repeat / 10) for repeat in range(3)]
    runs += [make_reference(precision="int8", sha256="b2" * 32, p50_ms=1.25, **no_energy())]
    for device in ("pi-1", "pi-2"):
        runs += [make_run(device, p50_ms=10.0 + repeat / 3) for repeat in range(5)]
        runs += [make_run(device, precision="int8", sha256="b2" * 32, p50_ms=5.5, ap=0.55, **no_energy("no sensor"))]
    runs += [make_run("pi-2", scenario="offline", p50_ms=None, ap=None)]
    quoted = record_conditions.Violation(rule="busy-machine", numbers={"other_load_ratio": 0.4}, subject='"quoted", \\ and\nmore')
    disturbed = record_conditions.Verdict(state="disturbed", violations=(record_conditions.Violation(rule="throttled"), quoted))
    runs += [
        make_run("pi-3", verdict=disturbed),
        make_run("pi-3", verdict=violating("invalid", "empty")),
    ]
    started_at_ns = 1_760_000_000_123_456_789
    # Two in one nanosecond: their order is that of their numbers, wherever they are read from.
    return [
        msgspec.structs.replace(run, id=f"run-{seq}", session=7, seq=seq, started_at_ns=started_at_ns + seq // 2 * 1_000_000_007)
        for seq, run in enumerate(runs, 1)
    ]


def drain_to(path, config, runs, points=None):
    """Keep `runs` in a ledger at `path` and drain it to `config`."""
    drained(fill(path, runs), open_sink(config), points)


def url_of(influx_place):
    """Return the URL of a place, as somebody types it."""
    return f"{influx_place.server.url}?" + (
        f"db={influx_place.name}" if influx_place.version == 1 else f"org={influx_place.server.org}&bucket={influx_place.name}"
    )


@pytest.fixture
def token(influx_place, monkeypatch):
    """Set the token; an InfluxDB 1 without authentication needs none."""
    monkeypatch.setenv("EDGEMETER_INFLUX_TOKEN", getattr(influx_place.server, "token", "none:none"))


@pytest.mark.usefixtures("token")
def test_compare_gives_the_same_document_from_the_ledger_and_from_influxdb(influx_place, tmp_path, monkeypatch):
    """To the byte, also where the store is named in the environment, and where more runs are read than one chunk of the answer holds."""
    path = tmp_path / "ledger.sqlite"
    runs = [msgspec.structs.replace(make_run(), id=f"r{seq}", session=8, seq=seq) for seq in range(1, 1502)]
    drain_to(path, influx_place.config(), [*fleet(), *runs])
    options = ["--reference", "reference", "--format", "json"]
    from_ledger = CliRunner().invoke(compare, [*options, "--ledger", str(path)])
    monkeypatch.setenv("EDGEMETER_STORE", url_of(influx_place))
    from_influx = CliRunner().invoke(compare, options)
    assert from_ledger.exit_code == from_influx.exit_code == 0, from_influx.output
    assert from_influx.stdout == from_ledger.stdout
    document = json.loads(from_influx.stdout)
    assert len(document["rows"]) > 3
    assert len(document["left_out"]) > 0
    both = open_store(str(path), url_of(influx_place)).contents().runs
    assert [run.seq for run in both if run.session == 8] == [seq for seq in range(1, 1502) for _ in range(2)]


def test_points_of_the_figures_alone_cannot_be_compared_and_state_why(influx_place, tmp_path):
    """What compare needs has to be in the point."""
    drain_to(tmp_path / "ledger.sqlite", influx_place.config(), fleet(), Points("figures"))
    with pytest.raises(ConfigError, match="missing required field"):
        InfluxStore(influx_place.config()).contents()
    drain_to(tmp_path / "whole.sqlite", influx_place.config(), fleet()[:1])
    other = [msgspec.structs.replace(run, id=f"other-{run.seq}", session=8) for run in fleet()[:2]]
    drain_to(tmp_path / "few.sqlite", influx_place.config(), other, Points("figures"))
    contents = InfluxStore(influx_place.config()).contents()
    assert [run.id for run in contents.runs] == ["run-1"]
    assert {entry.run for entry in contents.left_out} >= {"other-1", "other-2"}


def test_a_record_that_two_collectors_stamped_is_one_run(influx_place, tmp_path):
    """Without a clock the stamp is the time of receipt, which differs: on two days it is two points, and one record."""
    run = msgspec.structs.replace(fleet()[0], clock_synchronised=False, stamped_by="collector")
    restamped = msgspec.structs.replace(run, started_at_ns=run.started_at_ns + 86_400_000_000_000)
    for name, stamped in (("one", run), ("other", restamped)):
        drain_to(tmp_path / name, influx_place.config(), [stamped])
    (row,) = influx_place.query("SELECT count(seq) FROM run")
    assert row["count"] == 2
    assert InfluxStore(influx_place.config()).contents().runs == [msgspec.structs.replace(run, samples=())]


def test_an_empty_place_is_a_store_without_runs_and_an_absent_one_an_error(influx_place, sink_of):
    """The bucket is there and holds nothing yet; a typo in its name is reported."""
    sink_of(influx_place.config()).prepare()
    assert InfluxStore(influx_place.config()).contents().runs == []
    absent = influx_place.config(**{"bucket" if influx_place.version == 2 else "database": "typo"})
    with pytest.raises(ConfigError, match="'typo'"):
        InfluxStore(absent).contents()
