import os

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import DEFAULT
from edgemeter.collector.trend.shares import in_processes
from tests.fixtures.ledgers import arrival
from tests.fixtures.series_factory import make_days, noisy

pytestmark = pytest.mark.services


@pytest.mark.parametrize("by_type", [False, True])
def test_several_processes_find_what_one_finds(tmp_path, monkeypatch, by_type):
    monkeypatch.setattr(watch, "RUNS_A_PROCESS", 1)
    path = tmp_path / "ledger.sqlite"
    boards = [
        make_days(noisy(100, 50, seed=unit, step_at=35, step_ratio=1.1), device=f"pi-{unit}")
        for unit in range(3)
    ]
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(run, run.started_at_ns) for runs in boards for run in runs])
    alone, shared = (
        watch.trends_of(
            History(LedgerStore(path)), (), DEFAULT, by_type=by_type, processes=processes
        )
        for processes in (1, 2)
    )
    assert any(trend.steps for trend in alone)
    assert shared == alone


def test_each_share_is_computed_in_a_process_of_its_own():
    processes = list(in_processes(lambda _: os.getpid(), 3, int))
    assert processes[0] == os.getpid()
    assert len(set(processes)) == 3


def test_the_share_of_a_process_that_failed_is_computed_here():
    parent = os.getpid()

    def work(share):
        if share == 1 and os.getpid() != parent:
            raise MemoryError
        return share, os.getpid() == parent

    assert list(in_processes(work, 3, tuple[int, bool])) == [(0, True), (1, True), (2, False)]
