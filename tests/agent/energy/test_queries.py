"""Facts about `edgemeter.agent.energy.queries`.

They also show what intervals hold on synthetic loads.
"""

from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.contract import samples
from edgemeter.agent.energy.queries import Queries, queries_of, without_rhythm
from tests.fixtures.rows import table_row
from tests.fixtures.sensor_worlds import World, draw_trial

# A closed loop whose power has edges, read nearly everywhere.
EVERYWHERE = World(closed=True, rate=2000, edge_s=0.002, timed_s=20, idle_s=1)


def test_a_power_without_rhythm_is_left_as_it_was_read():
    """Noise that has nothing to do with the queries is not fitted away."""
    draw = np.random.default_rng(1)
    queries = draw_trial(World(), draw).run.queries
    times = (np.sort(draw.random(600)) * 60 * 1e9).astype(np.int64) + 30 * 10**9
    for _ in range(20):
        assert without_rhythm(times, draw.normal(5, 1, 600), queries) is None


@pytest.mark.parametrize("world", [replace(EVERYWHERE, fps=7, duty=0.3, pauses=True)])
def test_what_is_taken_off_has_no_energy(world):
    """Over the timed part it integrates to zero, whatever the lengths of queries and pauses."""
    trial = draw_trial(world, np.random.default_rng(3))
    times_ns = np.array([reading.taken_ns for reading in trial.trace.readings])
    powers_w = np.array([reading.power_w for reading in trial.trace.readings])
    steadied = without_rhythm(times_ns, powers_w, trial.run.queries)
    assert np.mean(powers_w - steadied.powers_w) == pytest.approx(0, abs=0.01)


def test_a_clock_without_pauses_stands_still_in_them():
    """A time within a pause becomes its begin, and later times lose all pauses before them."""
    queries = Queries(
        np.array([0, 120]), np.array([100, 100]), 260, np.array([[100, 120], [220, 250]])
    )
    assert queries.without_pauses(np.array([0, 100, 110, 120, 220, 240, 260])).tolist() == [
        0,
        100,
        100,
        100,
        200,
        200,
        210,
    ]
    assert queries.are_paused(np.array([99, 100, 119, 120, 230, 255])).tolist() == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert queries.paused_ns == 50


def test_queries_come_out_of_the_raw_samples_of_a_run():
    """Starts count from the timed part; in an open loop a query works from its call on."""
    starts, latency = (
        samples.pack("query_start", "ns", np.array([0, 100, 250])),
        samples.pack("latency", "ns", np.array([60, 90, 80])),
    )
    queries = queries_of((starts, latency), 1000, 1400)
    assert (queries.starts_ns.tolist(), queries.durations_ns.tolist(), queries.end_ns) == (
        [1000, 1100, 1250],
        [60, 90, 80],
        1400,
    )
    arrivals = samples.pack("arrival", "ns", np.array([0, 80, 250]))
    assert queries_of((starts, latency, arrivals), 1000, 1400).durations_ns.tolist() == [60, 70, 80]


def test_raw_samples_without_queries_give_none():
    """The energy is then computed without queries.

    Their samples are absent, of another number, out of order, or answered beside each other.
    """
    starts, latency = (
        samples.pack("query_start", "ns", np.array([0, 100])),
        samples.pack("latency", "ns", np.array([60, 90])),
    )
    assert queries_of((latency,), 0, 200) is None
    assert queries_of((samples.pack("query_start", "ns", np.array([0])), latency), 0, 200) is None
    assert (
        queries_of((samples.pack("query_start", "ns", np.array([100, 0])), latency), 0, 200) is None
    )
    assert (
        queries_of((starts, latency, samples.pack("arrival", "ns", np.array([0]))), 0, 200) is None
    )
    assert queries_of((starts, samples.pack("latency", "ns", np.array([101, 90]))), 0, 200) is None


def test_a_wait_beside_a_query_or_another_wait_is_no_pause():
    """Only a wait in which no user has a query is a pause.

    Queries fill each half second, except from 10.5 to 11.5 s and from 20.5 to 21.5 s.
    """
    for pauses_s, left_s in [
        # One user waits for a minute while the other is served.
        ([(0.1, 60.0)], []),
        # Both wait at once.
        ([(10.5, 11.5), (10.6, 11.6)], []),
        ([(10.0, 10.5), (10.5, 10.5), (11.0, 11.5)], [(10.0, 10.5), (10.5, 10.5), (11.0, 11.5)]),
        ([(10.0, 10.5), (11.49, 12.0)], []),
    ]:
        with table_row(pauses_s):
            starts_s = [
                start_s
                for start_s in np.arange(1.0, 60.0, 0.5)
                if not 10.0 <= start_s < 11.5 and not 20.5 <= start_s < 21.5
            ]
            moments = {
                "query_start": starts_s,
                "pause_start": [begin for begin, _ in pauses_s],
                "pause_end": [end for _, end in pauses_s],
            }
            series = [
                samples.pack(name, "ns", np.round(np.multiply(times_s, 1e9)).astype(np.int64))
                for name, times_s in moments.items()
            ]
            series.append(samples.pack("latency", "ns", np.full(len(starts_s), 500_000_000)))
            queries = queries_of(series, 0, 60_000_000_000)
            assert [tuple(pause_s) for pause_s in (queries.pauses_ns / 1e9).tolist()] == left_s
