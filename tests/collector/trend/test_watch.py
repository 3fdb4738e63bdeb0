"""Facts about the watch: several processes find what one finds, and hold no more than they work on."""

import os

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import RunHistory
from tests.fixtures.series_factory import make_days, noisy

pytestmark = pytest.mark.services


def test_several_processes_find_what_one_finds_in_the_same_order(monkeypatch):
    """Of eleven boards, three at a time, one with a step; progress is shown to who waits."""
    monkeypatch.setattr(watch, "MOST_SERIES", 3)
    runs = [
        run
        for n in range(11)
        for run in make_days(noisy(100, 30, seed=n, step_at=20 if n == 4 else None, step_ratio=1.2), device=f"pi-{n:02}")
    ]
    reported = []
    alone, together = (
        watch.trends_of(
            RunHistory(runs),
            (),
            ("energy_gross_mj", "latency_p50_ms"),
            workers=workers,
            progress=lambda _, *counts: reported.append(counts),
        )
        for workers in (1, 2)
    )
    assert together == alone
    assert [len(trend.steps) for trend in alone if trend.metric == "energy_gross_mj"] == [int(n == 4) for n in range(11)]
    assert reported == 2 * [(3, 11), (6, 11), (9, 11), (11, 11)]


@pytest.mark.parametrize(("cores", "limit"), [(2, 3), (64, watch.MOST_PROCESSES + 1)])
def test_no_more_tasks_are_made_than_processes_work_on(cores, limit):
    """Runs of a million rows are not read all at once because reading is faster; on many cores four processes work."""
    begun = []

    def tasks():
        for task in range(12):
            begun.append(task)
            yield task

    ahead = [len(begun) - task for task, _ in watch.in_processes(abs, tasks(), cores)]
    assert len(ahead) == 12
    assert max(ahead) <= limit


def test_a_process_that_is_killed_ends_in_one_line_that_names_the_remedy():
    """As where memory runs out; nobody waits for what does not come."""
    with pytest.raises(UnavailableError, match="was killed"):
        list(watch.in_processes(os._exit, iter([1, 1, 1]), 2))
