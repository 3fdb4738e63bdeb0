import contextlib
import random

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import LedgerHistory, RunHistory, open_history
from edgemeter.collector.trend.watch_file import Annotation
from tests.fixtures.comparison_factory import document
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy


def keep(path, runs):
    """Commit runs to the ledger at `path`."""
    with SqliteLedger(path) as ledger:
        ledger.commit([Arrival(run, record.encode(run), "edgemeter/v1/lab/pi-1/result", run.started_at_ns) for run in runs])


@pytest.fixture
def ledger(tmp_path):
    """Return the path of a ledger with a step in it."""
    path = tmp_path / "ledger.sqlite"
    keep(path, make_days(noisy(100, 60, step_at=45, step_ratio=1.08)))
    return path


def test_the_index_answers_as_the_records_themselves(ledger):
    """Every figure of every point, and every finding."""
    indexed = LedgerHistory(ledger)
    with SqliteLedger(ledger, "read") as opened:
        direct = RunHistory([held.record for held in opened.records()])
    assert list(indexed.series()) == list(direct.series())
    (key,) = indexed.series()
    assert [run._replace(received_ns=0) for run, _ in indexed.points(key)] == [run._replace(received_ns=0) for run, _ in direct.points(key)]
    metrics = ("energy", "latency", "accuracy", "throttling")
    assert watch.trends_of(indexed, (), metrics) == watch.trends_of(direct, (), metrics)
    # From what was kept, too.
    assert watch.trends_of(indexed, (), metrics) == watch.trends_of(direct, (), metrics)
    indexed.close()


def test_what_came_since_is_taken_in(ledger):
    """A second opening reads the new records only, and its findings are new."""
    first = LedgerHistory(ledger)
    (before,) = watch.trends_of(first, (), ["energy"])
    first.close()
    keep(ledger, make_days([None] * 60 + noisy(108, 5, seed=9), seq=60))
    told = []
    second = LedgerHistory(ledger, progress=lambda row, last: told.append((row, last)))
    (after,) = watch.trends_of(second, (), ["energy"])
    assert (before.points, after.points) == (60, 65)
    assert told == [(65, 65)]
    second.close()


def test_another_ledger_at_the_same_place_begins_anew(ledger):
    """A restored or new ledger has another collector: nothing of the old one is left in the index."""
    LedgerHistory(ledger).close()
    for left in ledger.parent.glob("ledger.sqlite*"):
        if not left.name.startswith("ledger.sqlite.trend"):
            left.unlink()
    keep(ledger, make_days(noisy(50, 20), device="pi-2"))
    history = LedgerHistory(ledger)
    assert [key.device for key in history.series()] == ["pi-2"]
    assert [one.points for one in watch.trends_of(history, (), ["energy"])] == [20]
    history.close()


def test_a_garbled_index_is_said_to_be_one_and_can_be_deleted(ledger):
    """One line that says what to do."""
    LedgerHistory(ledger).close()
    index = ledger.with_name("ledger.sqlite.trend")
    index.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match="delete it"):
        LedgerHistory(ledger)
    index.unlink()
    LedgerHistory(ledger).close()


def test_a_document_of_a_board_is_a_history_too(tmp_path):
    """What `edgemeter run --json` printed, without a ledger."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*make_days(noisy(100, 15))))
    history = open_history([str(path)])
    assert [one.points for one in watch.trends_of(history, (), ["energy"])] == [15]


def test_a_document_in_which_nothing_can_be_read_is_refused(tmp_path):
    """Not silently an empty answer."""
    path = tmp_path / "runs.json"
    path.write_bytes(b'{"runs": [{"schema": 99}]}')
    with pytest.raises(ConfigError):
        open_history([str(path)])


METRICS = ("energy", "latency", "accuracy", "throttling")


def trends_in(path, index=None):
    """Return every finding of a ledger by series and by board type, and of what it had to be computed."""
    history, computed = LedgerHistory(path, index), set()
    keep = history.keep

    def noted(name, results):
        entries = list(results)
        computed.update(key for key, _, _ in entries)
        keep(name, entries)

    history.keep = noted
    with contextlib.closing(history):
        return [watch.trends_of(history, (), METRICS, by_type=by_type) for by_type in (False, True)], computed


def arrivals_of(runs, received_ns):
    """Return runs as they arrive."""
    return [Arrival(run, record.encode(run), f"edgemeter/v1/lab/{run.device}/result", received_ns) for run in runs]


def seeded(seed):
    """Return a source of random numbers."""
    return random.Random(seed)  # noqa: S311 - the same ones every time, no secret


def shuffled(chance):
    """Return runs of three boards with a step, most of them in order, some weeks late."""
    runs = []
    for unit in range(3):
        values = noisy(100, 50, seed=unit, step_at=35, step_ratio=1.1)
        runs += make_days(values, device=f"pi-{unit}", firmwares=["a"] * 35 + ["b"] * 15)
    return sorted(runs, key=lambda run: run.started_at_ns + (chance.random() < 0.15) * chance.randrange(20) * DAY_NS)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_is_computed_from_nothing(tmp_path, seed):
    """However runs come (late, repeated, stored anew with another row) and go (too old): after every batch."""
    path, chance = tmp_path / "ledger.sqlite", seeded(seed)
    runs, at = shuffled(chance), 0
    batches = 0
    while at < len(runs):
        size = chance.randrange(15, 50)
        now_ns = max(run.started_at_ns for run in runs[: at + size]) + DAY_NS // 24
        with SqliteLedger(path) as ledger:
            ledger.commit(arrivals_of(runs[at : at + size], now_ns))
            before = chance.sample(runs[: at + size], 5)
            if batches % 3 == 0:
                ledger.commit(arrivals_of(before, now_ns))
            elif batches % 3 == 1:
                ledger.release(0, arrivals_of(before, now_ns), (), drain_again=True)
            elif batches > 3:
                ledger.forget(Retention(records_days=30.0), now_ns)
        found, _ = trends_in(path)
        assert found == trends_in(path, tmp_path / f"anew-{batches}")[0]
        at, batches = at + size, batches + 1
    assert any(one.steps for one in found[0])


def test_only_what_changed_is_computed(tmp_path):
    """Nothing the second time; with a run of one board its series and its type; with one that is removed the same."""
    path = tmp_path / "ledger.sqlite"
    runs = shuffled(seeded(1))
    with SqliteLedger(path) as ledger:
        ledger.commit(arrivals_of(runs[:20], FIRST_DAY * DAY_NS))
        ledger.commit(arrivals_of(runs[20:-1], (FIRST_DAY + 5) * DAY_NS))
    found, computed = trends_in(path)
    assert {key.device for key in computed} == {"", "pi-0", "pi-1", "pi-2"}
    assert trends_in(path) == (found, set())
    with SqliteLedger(path) as ledger:
        ledger.commit(arrivals_of(runs[-1:], (FIRST_DAY + 6) * DAY_NS))
    assert {key.device for key in trends_in(path)[1]} == {"", runs[-1].device}
    assert trends_in(path)[1] == set()
    with SqliteLedger(path) as ledger:
        ledger.release(0, arrivals_of(runs[40:41], (FIRST_DAY + 7) * DAY_NS), (), drain_again=True)
    assert {key.device for key in trends_in(path)[1]} == {"", runs[40].device}


def test_a_declared_level_is_computed_anew_for_its_series(tmp_path):
    """And taken back, again."""
    path = tmp_path / "ledger.sqlite"
    keep(path, shuffled(seeded(2)))
    note = Annotation(day=FIRST_DAY + 35, text="new firmware", device="pi-1")
    for known in ((), (note,), ()):
        history = LedgerHistory(path)
        found = watch.trends_of(history, known, ("energy",))
        history.close()
        assert found == watch.trends_of(RunHistory(shuffled(seeded(2))), known, ("energy",))
