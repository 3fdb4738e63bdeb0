import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import LedgerHistory, RunHistory, open_history
from tests.fixtures.comparison_factory import document
from tests.fixtures.series_factory import make_days, noisy


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
