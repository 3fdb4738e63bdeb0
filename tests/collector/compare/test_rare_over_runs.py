"""Test the intervals of missed frames and of tails over several runs.

The worlds have bursts and a cron job, in which rare events come together.
"""

import numpy as np
import pytest

from edgemeter.agent.contract.figures import MISSED, figure
from edgemeter.agent.contract.record_figures import Latency, Windows
from edgemeter.collector.compare.case_figure import figure_of
from edgemeter.collector.runs.case_runs import CaseRuns
from edgemeter.collector.runs.store import MemoryStore
from tests.fixtures.record_factory import make_record, make_steady

RATE = 15.0


def bursts(every_s, longest_s, generator):
    """Return a world in which bursts come by chance, and the share of frames that they hit.

    A burst comes once in so many seconds.
    """

    def world(times_s):
        begins = generator.uniform(
            -longest_s, times_s[-1], generator.poisson(every_s**-1 * (times_s[-1] + longest_s))
        )
        ends = begins + generator.uniform(0, longest_s, begins.size)
        return np.any(
            [(times_s >= begin) & (times_s < end) for begin, end in zip(begins, ends, strict=True)],
            axis=0,
        )

    return world


def cron(longest_s, generator):
    """Return a world in which a cron begins its work each minute."""

    def world(times_s):
        first_s = generator.uniform(0, 60)
        lengths_s = generator.uniform(0, longest_s, int(times_s[-1] // 60) + 3)
        minutes = ((times_s + first_s) // 60).astype(int)
        return (times_s + first_s) % 60 < lengths_s[minutes]

    return world


def over(records, name):
    return figure_of(figure(name), MemoryStore(records).columns("TRUE"))


def share_of_runs(world, seconds, runs):
    """Return what so many runs of a camera in this world show."""
    records = []
    for _ in range(runs):
        late = int(np.sum(world(np.arange(0, seconds, 1 / RATE))))
        frames = round(seconds * RATE)
        records.append(
            make_record(
                steady=make_steady(
                    rate_per_s=RATE, frames=frames, late=late, missed_ratio=late / frames
                )
            )
        )
    return over(records, MISSED)


WORLDS = {
    "bursts every 5 s": lambda generator: bursts(5.0, 0.2, generator),
    "bursts every 20 s": lambda generator: bursts(20.0, 1.0, generator),
    "cron": lambda generator: cron(7.0, generator),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("seconds", "runs"), [(60, 5), (120, 3), (120, 5)])
def test_an_interval_of_missed_frames_holds_the_truth(name, seconds, runs):
    """In 19 of 20 cases a stated interval holds what an hour and more shows.

    It is stated in most cases.
    """
    generator = np.random.default_rng(6)
    world = WORLDS[name](generator)
    true_ratio = np.mean([world(np.arange(0, 3600, 1 / RATE)).mean() for _ in range(30)])
    figures = [share_of_runs(world, seconds, runs) for _ in range(150)]
    bounded = [each for each in figures if each.low is not None]
    assert len(bounded) > 0.5 * len(figures)
    assert sum(each.low <= true_ratio <= each.high for each in bounded) >= 0.9 * len(bounded)


@pytest.mark.parametrize("name", WORLDS)
def test_runs_too_short_to_see_an_event_state_no_interval(name):
    """Three runs of ten seconds have a share and no interval.

    Some saw a burst and some none, and an event that comes once a minute is in neither.
    """
    generator = np.random.default_rng(6)
    figures = [share_of_runs(WORLDS[name](generator), 10, 3) for _ in range(20)]
    assert {(each.low, each.high) for each in figures} == {(None, None)}
    assert {each.runs for each in figures} == {3}


def test_runs_that_missed_none_have_a_share_and_no_interval():
    """An hour without a miss does not say how often one comes."""
    none = share_of_runs(lambda times_s: np.zeros(times_s.size, bool), 3600, 3)
    assert (none.value, none.low, none.high) == (0.0, None, None)


def tail_of_runs(world, seconds, runs, generator):
    """Return the p99 that so many runs at a hundred queries a second show.

    A query takes 10 ms, and 16 ms within an event of the world.
    """
    records = []
    for _ in range(runs):
        windows = Windows(timed_start_ns=0, timed_end_ns=round(seconds * 1e9))
        times_ms = latencies_ms(world, seconds, generator)
        latency = Latency(
            count=times_ms.size,
            mean_ms=times_ms.mean(),
            max_ms=times_ms.max(),
            p99_ms=float(np.quantile(times_ms, 0.99)),
        )
        records.append(make_record(latency=latency, windows=windows))
    return over(records, "latency_p99_ms")


def latencies_ms(world, seconds, generator):
    """Return the latencies of queries that come a hundred times a second."""
    hit = world(np.arange(0, seconds, 0.01))
    return np.where(hit, 16, 10) * np.exp(0.03 * generator.standard_normal(hit.size))


@pytest.mark.parametrize("name", WORLDS)
def test_a_tail_has_an_interval_where_runs_take_a_minute(name):
    """The interval of minute-long runs holds what hours show in nine of ten cases.

    Runs of ten seconds, of which most saw no burst, have none.
    """
    generator = np.random.default_rng(6)
    world = WORLDS[name](generator)
    true_ms = np.quantile(
        np.concatenate([latencies_ms(world, 3600, generator) for _ in range(5)]), 0.99
    )
    figures = [tail_of_runs(world, 60, 5, generator) for _ in range(100)]
    assert sum(each.low <= true_ms <= each.high for each in figures) >= 90
    short = tail_of_runs(world, 10, 5, generator)
    assert (short.low, short.high, short.runs) == (None, None, 5)


def test_the_other_tails_follow_the_same_rule():
    """The p90 and the jitter have an interval only with windows of a minute."""
    for name in ("latency_p90_ms", "steady_jitter_p90_ms"):
        for frames, has_interval in ((RATE * 60, True), (RATE * 10, False)):
            steady = make_steady(rate_per_s=RATE, frames=int(frames))
            runs = MemoryStore([make_record(steady=steady) for _ in range(3)]).columns("TRUE")
            runs = CaseRuns(runs.subjects, {**runs.columns, name: np.array([10.0, 10.1, 10.2])})
            of_case = figure_of(figure(name), runs)
            assert (of_case.low is not None) == has_interval, name
