import dataclasses
import random

import numpy as np
import pytest

from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend import history as histories
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.days import days_of_series
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS as KNOWN
from edgemeter.collector.trend.run_columns import names_of
from edgemeter.collector.trend.watch_file import Annotation
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import violating
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy
from tests.fixtures.trend_columns import columns_of, days_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def keep(path, runs):
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, run.started_at_ns) for run in runs])


def of_ledger(path, device=None):
    return History(LedgerStore(path), device)


@pytest.fixture
def ledger(path):
    keep(path, make_days(noisy(100, 60, step_at=45, step_ratio=1.08)))
    return path


def test_the_rows_give_the_same_figures_as_the_records(ledger):
    """Every figure of every point is the same, and so is every finding."""
    of_rows = of_ledger(ledger)
    with SqliteLedger(ledger, "read") as opened:
        direct = history_of([entry.record for entry in opened.records()])
    assert list(of_rows.series()) == list(direct.series())
    (key,) = of_rows.series()
    points = [
        [run._replace(row=0, session=0, seq=0) for run in history.points(key)]
        for history in (of_rows, direct)
    ]
    assert points[0] == points[1]
    metrics = ("energy_gross_mj", "latency_p50_ms", "accuracy_value", "is_throttled")
    assert watch.trends_of(of_rows, (), metrics) == watch.trends_of(direct, (), metrics)


@pytest.fixture
def fleet(ledger):
    """Return a ledger of four devices with several runs a day.

    Firmware and temperature change; some runs are invalid or lack energy.
    """
    firmwares = ["1"] * 20 + ["2"] * 20
    keep(ledger, make_days(noisy(90, 40, seed=3), device="pi-9", runs_a_day=3, firmwares=firmwares))
    keep(
        ledger,
        make_days(
            noisy(95, 40, seed=4),
            device="pi-2",
            temperatures_c=noisy(50, 40, step_at=25, step_ratio=1.2),
        ),
    )
    keep(
        ledger,
        make_days(noisy(99, 15, seed=5), device="pi-5", verdict=violating("invalid", "throttled")),
    )
    keep(
        ledger,
        make_days(
            [None] * 15 + noisy(99, 30, seed=6),
            device="pi-5",
            seq=100,
            energy=None,
            firmwares=["1"] * 45,
        ),
    )
    return ledger


def test_columns_hold_the_figures_of_the_points(fleet, monkeypatch):
    """The series are in the order asked for, each with its own runs and facts.

    Few are looked up, many read in pages; an unknown figure is NaN.
    """
    monkeypatch.setattr(histories, "_PAGE", 70)
    history, names = of_ledger(fleet), names_of(KNOWN.values())
    keys = list(history.series())
    assert len(keys) > 3
    for selected in (keys, keys[::-1], keys[1:2], []):
        read, expected = (
            history.columns(selected, names),
            columns_of([history.points(key) for key in selected], names),
        )
        for name in ("edges", "day", "is_ok"):
            np.testing.assert_array_equal(getattr(read, name), getattr(expected, name))
        assert [read.facts[number] for number in read.common] == [
            expected.facts[number] for number in expected.common
        ]
        for name in names:
            np.testing.assert_array_equal(read.figures[name], expected.figures[name])


def test_the_days_of_many_series_are_those_of_each_alone(fleet):
    """No run counts for a neighbouring series."""
    history = of_ledger(fleet)
    keys = history.series()
    for name, metric in KNOWN.items():
        with table_row(name):
            together = days_of_series(metric, history.columns(keys, names_of([metric])))
            for key, days in zip(keys, together, strict=True):
                alone = days_of(metric, history.points(key))
                for field in dataclasses.fields(days):
                    np.testing.assert_equal(
                        getattr(days, field.name), getattr(alone, field.name), field.name
                    )
            assert sum(len(days.day) for days in together) >= (
                0
                if name
                in {
                    "steady_missed_ratio",
                    "generation_ttft_p50_ms",
                    "generation_tpot_p50_ms",
                    "accuracy_value",
                    "energy_net_mj",
                }
                else 100
            )


def test_what_came_since_is_in_the_next_history(ledger):
    """The findings of the next history are new."""
    points = []
    for came in ([], make_days([None] * 60 + noisy(108, 5, seed=9), seq=60)):
        keep(ledger, came)
        points += [
            trend.points for trend in watch.trends_of(of_ledger(ledger), (), ["energy_gross_mj"])
        ]
    assert points == [60, 65]


METRICS = ("energy_gross_mj", "latency_p50_ms", "accuracy_value", "is_throttled")


def trends_in(path, results):
    """Return every finding of a ledger by series and by board type.

    Return too which of them had to be computed.
    """
    before = dict(results)
    history = of_ledger(path)
    trends = [
        watch.trends_of(history, (), METRICS, by_type=by_type, results=results)
        for by_type in (False, True)
    ]
    return trends, {
        key for (name, key), result in results.items() if result is not before.get((name, key))
    }


def shuffled(seed):
    """Return runs of three boards with a step, most of them in order, some weeks late."""
    chance, runs = random.Random(seed), []  # noqa: S311 - the same ones every time, no secret
    for unit in range(3):
        values = noisy(100, 50, seed=unit, step_at=35, step_ratio=1.1)
        runs += make_days(values, device=f"pi-{unit}", firmwares=["a"] * 35 + ["b"] * 15)
    return sorted(
        runs,
        key=lambda run: (
            run.started_at_ns + (chance.random() < 0.15) * chance.randrange(20) * DAY_NS
        ),
    )


def test_only_what_changed_is_computed(path):
    """Nothing is computed the second time.

    A new run of one board causes its series and its type to be computed, and so does a removed one.
    """
    runs, results = shuffled(1), {}
    keep(path, runs[:-1])
    trends, computed = trends_in(path, results)
    assert {key.device for key in computed} == {"", "pi-0", "pi-1", "pi-2"}
    assert trends_in(path, results) == (trends, set())
    keep(path, runs[-1:])
    assert {key.device for key in trends_in(path, results)[1]} == {"", runs[-1].device}
    with SqliteLedger(path) as ledger:
        # It gets another row.
        LedgerRuns(ledger).withdraw(runs[40].id, "excluded", "ada", "")
        LedgerRuns(ledger).include(runs[40].id, "ada", "")
    assert {key.device for key in trends_in(path, results)[1]} == {"", runs[40].device}


def test_a_declared_level_is_computed_anew_for_its_series(path):
    """The trends follow when a level is declared and when it is taken back."""
    keep(path, shuffled(2))
    note, results = Annotation(day=FIRST_DAY + 35, text="new firmware", device="pi-1"), {}
    for annotations in ((), (note,), ()):
        trends = watch.trends_of(
            of_ledger(path), annotations, ("energy_gross_mj",), results=results
        )
        assert trends == watch.trends_of(history_of(shuffled(2)), annotations, ("energy_gross_mj",))


def test_the_history_of_one_board_is_that_of_all_for_this_board(fleet):
    """The figures and findings are the same, but no other board's series is in it.

    The newest day is that of all.
    """
    of_board, of_all = of_ledger(fleet, "pi-9"), of_ledger(fleet)
    keys = of_board.series()
    assert keys == [key for key in of_all.series() if key.device == "pi-9"]
    assert [of_board.points(key) for key in keys] == [of_all.points(key) for key in keys]
    assert watch.trends_of(of_board, (), METRICS) == watch.trends_of(of_all, (), METRICS, keys)
    assert (
        of_board.newest_day() == of_all.newest_day() == max(map(of_all.last_day, of_all.series()))
    )


def test_the_first_day_asked_for_is_among_those_returned():
    """The day before it is not."""
    history = history_of(make_days([100.0] * 5))
    (key,) = history.series()
    assert [run.day - FIRST_DAY for run in history.points(key, FIRST_DAY + 3)] == [3, 4]
