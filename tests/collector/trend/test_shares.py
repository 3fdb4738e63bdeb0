import os

import pytest

from edgemeter.collector.trend import watch
from edgemeter.collector.trend.shares import in_processes
from tests.collector.trend.test_history import METRICS, keep, of_ledger, shuffled

pytestmark = pytest.mark.services


@pytest.mark.parametrize("by_type", [False, True])
def test_several_processes_find_what_one_finds(tmp_path, monkeypatch, by_type):
    monkeypatch.setattr(watch, "RUNS_A_PROCESS", 1)
    keep(tmp_path / "ledger.sqlite", shuffled(3))
    alone, shared = (
        watch.trends_of(of_ledger(tmp_path / "ledger.sqlite"), (), METRICS, by_type=by_type, processes=processes) for processes in (1, 2)
    )
    assert alone
    assert shared == alone


def test_each_share_is_computed_in_a_process_of_its_own():
    here, *others = in_processes(lambda _: os.getpid(), 3, int)
    assert here == os.getpid()
    assert len({here, *others}) == 3


def test_the_share_of_a_process_that_failed_is_computed_here():
    here = os.getpid()

    def work(share):
        if share == 1 and os.getpid() != here:
            raise MemoryError
        return share, os.getpid() == here

    assert list(in_processes(work, 3, tuple[int, bool])) == [(0, True), (1, True), (2, False)]
