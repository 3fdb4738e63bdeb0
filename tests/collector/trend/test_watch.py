"""Facts about the watch: so many series at once as memory holds."""

from edgemeter.collector.trend import watch
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import make_days, noisy


def test_a_few_series_at_a_time_are_found_what_all_together_are(monkeypatch):
    """One of eleven boards, four at a time, has a step; the progress is shown to who waits."""
    runs = [
        run
        for n in range(11)
        for run in make_days(
            noisy(100, 30, seed=n, step_at=20 if n == 4 else None, step_ratio=1.2),
            device=f"pi-{n:02}",
        )
    ]
    metrics, history, reported = ("energy_gross_mj", "latency_p50_ms"), history_of(runs), []
    together = watch.trends_of(history, (), metrics)
    monkeypatch.setattr(watch, "MOST_RUNS", 4 * 30)
    assert (
        watch.trends_of(history, (), metrics, progress=lambda _, *counts: reported.append(counts))
        == together
    )
    assert [len(trend.steps) for trend in together if trend.metric == "energy_gross_mj"] == [
        int(n == 4) for n in range(11)
    ]
    assert reported == [(2, 11), (4, 11), (6, 11), (8, 11), (9, 11), (11, 11)]
