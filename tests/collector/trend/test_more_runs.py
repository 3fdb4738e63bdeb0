import numpy as np

from edgemeter.collector.trend import more_runs, watch
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile
from tests.fixtures.series_factory import FIRST_DAY, make_days, noisy

TODAY = FIRST_DAY + 56


def suspects(count):
    """Return trends of which `count` have a suspect: 3% at 1% noise five days ago."""
    runs = []
    for unit in range(count):
        runs += make_days(noisy(100, 57, seed=300 + unit, step_at=52, step_ratio=1.035), device=f"pi-{unit:02}")
    found = watch.trends_of(RunHistory(runs), (), ["energy"])
    return [one for one in found if one.suspect]


def test_a_suspect_asks_its_board_for_more_runs_once_a_day(tmp_path):
    """The second check of the day asks for nothing more; the next day it asks again."""
    found = suspects(6)
    assert len(found) >= 3
    with WatchFile(tmp_path / "w") as file:
        asked = more_runs.request_more_runs(file, found, day=TODAY, runs_lately=10_000)
        assert {one.key.device for one in asked} == {one.key.device for one in found}
        assert all((one.runs, one.state) == (more_runs.MORE_RUNS, "pending") for one in asked)
        assert more_runs.request_more_runs(file, found, day=TODAY, runs_lately=10_000) == asked
        assert len(more_runs.request_more_runs(file, found, day=TODAY + 1, runs_lately=10_000)) == len(found)


def test_no_more_than_a_tenth_is_asked_for_and_the_most_suspicious_come_first(tmp_path):
    """Of a hundred runs in 30 days ten more are allowed: two boards of all the suspects, those least likely by chance."""
    found = suspects(8)
    with WatchFile(tmp_path / "w") as file:
        asked = more_runs.request_more_runs(file, found, day=TODAY, runs_lately=100)
        assert sum(one.runs for one in asked) == 10
        likely = sorted(found, key=lambda one: one.chance)[:2]
        assert {one.key.device for one in asked} == {one.key.device for one in likely}
        assert more_runs.request_more_runs(file, found, day=TODAY + 1, runs_lately=100) == []


def test_what_becomes_of_a_request_is_kept_and_an_old_one_expires(tmp_path):
    """Whoever carries it to the board says so; nobody did within three days: it is no longer of use, nor counted."""
    found = suspects(4)[:1]
    with WatchFile(tmp_path / "w") as file:
        (first,) = more_runs.request_more_runs(file, found, day=TODAY, runs_lately=100)
        more_runs.settle_requests(file, first.number, "sent")
        assert [one.state for one in more_runs.read_requests(file)] == ["sent"]
        more_runs.request_more_runs(file, [], day=TODAY + 5, runs_lately=100)
        assert [one.state for one in more_runs.read_requests(file)] == ["expired"]


def test_extra_runs_of_a_suspect_confirm_a_step_that_single_runs_do_not():
    """A step of 4.5% at 1% noise of a run, seven days old: with five runs a day instead of one it is confirmed in more of the series."""
    draw = np.random.default_rng(42)
    confirmed = {1: 0, 5: 0}
    for unit in range(12):
        before = make_days(noisy(100, 55, seed=unit, noise_ratio=0.02))
        later = 104.5 * np.exp(0.02 * draw.normal(size=(5, 7)))
        for turns in confirmed:
            after = [run for turn in range(turns) for run in make_days([None] * 55 + list(later[turn]), seq=1000 * (turn + 1))]
            (found,) = watch.trends_of(RunHistory(before + after), (), ["energy"])
            confirmed[turns] += any(step.state == "confirmed" for step in found.steps)
    assert confirmed[5] >= confirmed[1] + 3
