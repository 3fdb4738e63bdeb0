"""The comparison of a ledger with its InfluxDB, judged by damage that was done by other means than ours: raw requests to the server."""

import itertools
import json
import re
import threading
import time

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_HOUR
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import daily_reconciler, reconcile
from edgemeter.collector.influx.daily_reconciler import DailyReconciler
from edgemeter.collector.influx.influx_config import parse_influx, reader_of, url_of
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.reconcile import Reconciler
from edgemeter.collector.influx.reconciliation import Reconciliation, outcomes, save
from edgemeter.collector.influx.set_up import set_up_influx
from edgemeter.collector.influx.tag_values import TagValues
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.draining import drained
from tests.fixtures.ledgers import arrival, fill, text_of
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.served_page import served

NOON_NS = STARTED_AT_NS - STARTED_AT_NS % NS_PER_DAY + NS_PER_DAY // 2
RECEIVED_NS = NOON_NS + 5 * NS_PER_DAY


def run(seq, **changes):
    """Return one of ten runs a day, of two devices in turn."""
    about = {"device": f"pi-{seq % 2}", "session": 5, "seq": seq + 1, "started_at_ns": NOON_NS + seq // 10 * NS_PER_DAY + seq * 10**9}
    return make_record(**(about | changes))


def points():
    """Return what is written of a record: whole records, histograms too."""
    return Points("all", frozenset({"latency_histogram"}), TagValues())


@pytest.fixture
def damaged(influx_place, sink_of, ledger_place):
    """Return a ledger of 40 runs that was drained to a place; one run has a clock that cannot be right."""
    runs = [run(seq, **({"started_at_ns": 5} if seq == 33 else {})) for seq in range(40)]
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(entry, RECEIVED_NS) for entry in runs])
    drain(ledger_place, sink_of(influx_place.config()))
    return Damaged(influx_place, ledger_place, sink_of, runs)


def drain(ledger_place, sink):
    """Drain the ledger to its end."""
    drained(ledger_place, sink, points())


class Damaged:
    """A ledger, and its InfluxDB as somebody with the server's own requests changes it."""

    def __init__(self, influx_place, ledger_place, sink_of, runs):
        self.influx_place, self.ledger_place, self.sink_of, self.runs = influx_place, ledger_place, sink_of, runs

    def content(self, query="SELECT * FROM run"):
        """Return every point, as the server has it."""
        return sorted(map(repr, (sorted(row.items(), key=str) for row in self.influx_place.query(query))))

    def rows(self, run):
        """Return the points of a run."""
        return [row for row in self.influx_place.query("SELECT * FROM run") if row["id"] == run.id]

    def write(self, *lines):
        """Write lines as anybody may who has the token."""
        assert self.sink_of(self.influx_place.config()).write(lines) == []

    def delete(self, run):
        """Delete everything of a run."""
        (row,) = self.rows(run)
        self.sink_of(self.influx_place.config()).remove(run.device, row["time"])

    def compared(self, *, repairs, **options):
        """Return the outcome of a comparison."""
        with open_ledger(self.ledger_place) as ledger:
            sink = self.sink_of(self.influx_place.config())
            return Reconciler(ledger, sink, points(), self.influx_place.config()).reconcile(repairs=repairs, **options)


def moved(line, by_ns):
    """Return a point at another time."""
    head, _, at_ns = line.rpartition(" ")
    return f"{head} {int(at_ns) + by_ns}"


@pytest.mark.parametrize("slice_runs", [20_000, 7])
def test_damage_of_every_kind_is_found_and_repaired(damaged, monkeypatch, slice_runs):
    """After the repair the place holds exactly what it held before, and the points of a ledger that is not ours."""
    monkeypatch.setattr(reconcile, "SLICE_RUNS", slice_runs)
    before, histograms = damaged.content(), damaged.content("SELECT * FROM latency_histogram")
    assert damaged.compared(repairs=False).days == ()
    lines = [point_line(entry) for entry in damaged.runs]
    for seq in (3, 17, 33):
        damaged.delete(damaged.runs[seq])
    damaged.write(
        *(line.replace(",precision=", ",precision=was-") for line in lines[5:8]),  # Other tags, the same time.
        *(moved(line, 3_600 * 10**9) for line in lines[10:14]),  # Another time, beside the right one.
        moved(lines[3], -NS_PER_DAY),  # Another time, and the right one is missing.
        point_line(run(100, id="of-another-ledger")),
    )
    assert damaged.content() != before
    difference = damaged.compared(repairs=False)
    assert difference.remaining == {"missing": 3, "doubled": 3, "misplaced": 5}
    assert (difference.runs, difference.unknown, difference.repaired) == (40, 1, 0)
    total = {kind: sum(day.differences.get(kind, 0) for day in difference.days) for kind in difference.remaining}
    assert total == difference.remaining
    assert sum(day.runs for day in difference.days) <= 40
    repaired = damaged.compared(repairs=True)
    assert (repaired.remaining, repaired.repaired, repaired.days) == ({}, 11, difference.days)
    assert damaged.content("SELECT * FROM latency_histogram") == histograms
    remaining = damaged.content()
    assert [row for row in remaining if "of-another-ledger" not in row] == before
    assert len(remaining) == len(before) + 1
    assert damaged.compared(repairs=True).days == ()


def test_an_emptied_place_is_filled_again(damaged):
    """Somebody deleted everything and kept the bucket."""
    before = damaged.content()
    for entry in damaged.runs:
        damaged.delete(entry)
    outcome = damaged.compared(repairs=True)
    assert (outcome.points, outcome.repaired, outcome.remaining) == (0, 40, {})
    assert damaged.content() == before


def test_a_run_that_was_excluded_leaves_and_one_that_was_included_again_stays(damaged):
    """An old backup of the bucket brought both back."""
    with open_ledger(damaged.ledger_place) as ledger:
        history = LedgerRuns(ledger)
        for entry in damaged.runs[:2]:
            history.withdraw(entry.id, "excluded", "ada@lab", "the fan was off")
        history.include(damaged.runs[1].id, "ada@lab", "it was not")
    drain(damaged.ledger_place, damaged.sink_of(damaged.influx_place.config()))
    damaged.write(*map(point_line, damaged.runs[:2]))
    outcome = damaged.compared(repairs=True)
    assert [day.differences for day in outcome.days] == [{"withdrawn": 1}]
    assert damaged.rows(damaged.runs[0]) == []
    assert len(damaged.rows(damaged.runs[1])) == 1


def test_what_is_not_drained_yet_is_not_missing(damaged):
    """A drain that is behind is the lag's affair."""
    with open_ledger(damaged.ledger_place) as ledger:
        ledger.commit([arrival(run(50), RECEIVED_NS)])
    outcome = damaged.compared(repairs=True)
    assert (outcome.runs, outcome.days, damaged.rows(run(50))) == (40, (), [])


def test_points_from_before_the_tag_are_no_difference_and_are_tagged_on_request(damaged):
    """Written again under the new tags, the old point is gone."""
    before = damaged.content()
    old = [entry for entry in damaged.runs if entry.seq % 3 == 0 and entry.seq != 33]
    for entry in old:
        damaged.delete(entry)
        damaged.write(re.sub(",case_hash=[0-9a-f]+", "", point_line(entry)))
    outcome = damaged.compared(repairs=True)
    assert (outcome.untagged, outcome.days) == (len(old), ())
    outcome = damaged.compared(repairs=True, retags=True)
    assert (outcome.untagged, outcome.days, outcome.repaired) == (0, (), 0)
    assert damaged.content() == before


def test_runs_that_influxdb_does_not_retain_or_refuses_are_no_difference(influx_place, sink_of, ledger_place):
    """What it retains is asked; what it refused lies in the quarantine."""
    set_up_influx(influx_place.config(), 20, {})
    now_ns = time.time_ns()
    runs = [run(seq, started_at_ns=now_ns - (40 - seq) * NS_PER_DAY + NS_PER_HOUR, seed=2**63 if seq == 39 else 1) for seq in range(40)]
    with open_ledger(ledger_place) as ledger:
        # What a device sent that is no record at all lies there too.
        garbage = Rejection("edgemeter/v1/lab/pi-1/result", b"garbage", "not a run record", now_ns)
        ledger.commit([arrival(entry, now_ns) for entry in runs], [garbage])
    drain(ledger_place, sink_of(influx_place.config()))
    for repairs in (False, True):
        outcome = Damaged(influx_place, ledger_place, sink_of, runs).compared(repairs=repairs)
        assert (outcome.expired, outcome.refused, outcome.days, outcome.remaining) == (20, 1, (), {})


def test_the_two_tokens_of_init_influx_suffice(damaged, tmp_path):
    """Neither is an administrator's; with the one that writes alone the error says which to give."""
    config = damaged.influx_place.config()
    set_up_influx(config, None, {"write": tmp_path / "write", "read": tmp_path / "read"})
    damaged.delete(damaged.runs[7])
    damaged.write(moved(point_line(damaged.runs[8]), 1_000_000))
    writer = parse_influx(url_of(config), token_file=tmp_path / "write", environ={})
    with open_ledger(damaged.ledger_place) as ledger:
        sink = damaged.sink_of(writer)
        assert Reconciler(ledger, sink, points(), reader_of(writer, tmp_path / "read")).reconcile(repairs=True).repaired == 2
        if damaged.influx_place.version == 2:
            # The tests' own InfluxDB 1 asks for no users.
            with pytest.raises(EdgemeterError, match="--influx-read-token-file"):
                Reconciler(ledger, sink, points(), writer).reconcile(repairs=True)


def test_a_ledger_that_was_never_drained_there_is_named(influx_place, sink_of, ledger_place):
    """Nothing is compared with the wrong bucket, and nothing is written there."""
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(run(1), RECEIVED_NS)])
    with pytest.raises(EdgemeterError, match=r"was not drained to .* yet: start `collector up"):
        Damaged(influx_place, ledger_place, sink_of, []).compared(repairs=True)


def command(damaged, *options):
    """Return the result of the command."""
    config = damaged.influx_place.config()
    address = text_of(damaged.ledger_place)
    line = ["reconcile", "--influx", url_of(config), "--ledger", address, "--influx-also", "latency_histogram", *options]
    return CliRunner(env={"EDGEMETER_INFLUX_TOKEN": config.token or None}).invoke(collector, line)


def test_the_command_reports_by_its_status_and_repairs(damaged):
    """With `--check` it only says so; then it repairs, and says what it did."""
    for entry in damaged.runs[8:12]:
        damaged.delete(entry)
    checked = command(damaged, "--check", "--format", "json")
    assert checked.exit_code == 1
    outcome = json.loads(checked.stdout)["reconciliation"]
    assert (outcome["remaining"], [day["differences"] for day in outcome["days"]]) == ({"missing": 4}, [{"missing": 2}, {"missing": 2}])
    assert "4 missing of 40 runs: repair it with `edgemeter collector reconcile`" in command(damaged, "--check").stderr
    repaired = command(damaged)
    assert (repaired.exit_code, "40 runs, each there once; 4 differences repaired" in repaired.stderr) == (0, True)
    assert command(damaged, "--check").exit_code == 0
    assert command(damaged, "--check", "--retag").exit_code == 2


def test_a_collector_compares_every_day_and_keeps_the_outcome(damaged, monkeypatch):
    """The first time at once, then a day after the last one; nobody has to call it."""
    monkeypatch.setattr(daily_reconciler, "PAUSE_S", 0.0005)
    damaged.delete(damaged.runs[4])
    config = damaged.influx_place.config()
    daily = DailyReconciler(damaged.ledger_place, config, config, poll_s=0.05)
    daily.start()
    try:
        with open_ledger(damaged.ledger_place, "read") as ledger:
            assert wait_until(lambda: outcomes(ledger), 30)
            (first,) = outcomes(ledger)
            assert (first.repaired, first.remaining, len(damaged.rows(damaged.runs[4]))) == (1, {}, 1)
            time.sleep(0.5)
            assert outcomes(ledger) == [first]
            now_ns = itertools.count(time.time_ns() + NS_PER_DAY)
            monkeypatch.setattr(time, "time_ns", lambda: next(now_ns))
            assert wait_until(lambda: outcomes(ledger)[0].at_ns > first.at_ns, 30)
    finally:
        daily.stop()


def test_the_page_shows_the_last_outcome(tmp_path):
    """A difference that remains stands out."""
    path = fill(tmp_path / "ledger.sqlite", [run(1)])
    outcome = Reconciliation("influx http://x bucket 'b'", NOON_NS, 9, 8, 2, 1, 0, 0, 0, (), {"missing": 3})
    texts = []
    for remaining in ({"missing": 3, "doubled": 1}, {}):
        with open_ledger(path) as ledger:
            save(ledger, msgspec.structs.replace(outcome, remaining=remaining, repaired=4))
        with served(path) as server:
            body = server.answer(ViewRequest("overview"), "").body.decode()
        texts += re.findall(r'<p class="(\w+)">(InfluxDB at [^<]*)</p>', body)
    assert [kind for kind, _ in texts] == ["caution", "note"]
    assert texts[0][1].endswith("3 missing, 1 doubled of 9 runs: repair it with `edgemeter collector reconcile`")
    assert texts[1][1].endswith(
        "9 runs, each there once but for 2 older than it retains and 1 refused, see the quarantine; 4 differences repaired"
    )


@pytest.mark.alone
def test_a_collector_that_ends_does_not_wait_for_a_comparison(damaged, monkeypatch):
    """Of a ledger of millions it takes minutes."""
    monkeypatch.setattr(daily_reconciler, "PAUSE_S", 3600.0)
    config = damaged.influx_place.config()
    daily = DailyReconciler(damaged.ledger_place, config, config, poll_s=0.05)
    daily.start()
    time.sleep(1.0)
    # With it the stop would take the hour that a pause is long.
    stopping = threading.Thread(target=daily.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
