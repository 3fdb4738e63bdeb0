"""Facts about `edgemeter.agent.energy.sensor_faults`: what readings show of a sensor that fails, and what they do not."""

import numpy as np

from edgemeter.agent.energy.sensor_faults import clipping, hangs, nothing_shown, overstays, spikes
from edgemeter.agent.energy.window import Window
from tests.fixtures.rows import table_row

S = 1_000_000_000
TIMED, IDLE = Window(20 * S, 80 * S), (Window(0, 20 * S), Window(80 * S, 100 * S))


def _trace(step_w, *, rate=10, clock_s=None, noise_w=0.2, load_noise_w=None, seed=1):
    """Return times and powers of 3 W while idle and 6 W under load, in steps; a `clock_s` in text is one that ticks by chance."""
    draw = np.random.default_rng(seed)
    at_s = (np.arange(100 * rate) + draw.random(100 * rate)) / rate
    if isinstance(clock_s, str):
        renewals_s = np.concatenate(([-10.0], np.cumsum(draw.exponential(float(clock_s), 1000))))
        shown_s = renewals_s[np.searchsorted(renewals_s, at_s, "right") - 1]
    else:
        shown_s = at_s if clock_s is None else np.floor(at_s / clock_s) * clock_s
    ticks, which = np.unique(shown_s, return_inverse=True)
    busy = (ticks >= 20) & (ticks < 80)
    scatter_w = np.where(busy, noise_w if load_noise_w is None else load_noise_w, noise_w)
    powers_w = np.where(busy, 6.0, 3.0) + scatter_w * draw.standard_normal(ticks.size)
    return (at_s * 1e9).astype(np.int64), (np.round(powers_w / step_w) * step_w)[which]


def _hung(times_ns, powers_w, begin_s, end_s):
    hung = (times_ns >= begin_s * S) & (times_ns < end_s * S)
    return np.where(hung, powers_w[np.argmax(hung)], powers_w)


def test_a_value_that_others_do_not_repeat_so_long_is_a_hang():
    """For a part of the load or to the end, whole or by its own clock; the moments are those of the hang."""
    for step_w, rate, clock_s in [(0.001, 10, None), (0.04, 10, None), (0.001, 10, 1.0), (0.1, 1, None), (0.001, 1, None)]:
        for begin_s, end_s in [(24, 100), (30, 55), (10, 45), (60, 95)]:
            with table_row(step_w, rate, clock_s, begin_s):
                times_ns, powers_w = _trace(step_w, rate=rate, clock_s=clock_s)
                arrays = (times_ns, _hung(times_ns, powers_w, begin_s, end_s), step_w, TIMED, IDLE)
                fault = (hangs(*arrays) or overstays(*arrays))[0]
                assert abs(fault.begin_ns / S - begin_s) < 2
                assert abs(fault.end_ns / S - end_s) < 2


def test_what_repeats_by_its_clock_or_its_steps_does_not_hang():
    """A renewal once a second or in five, whole watts of an even load, a load that only drifts, and readings that come twice."""
    for number, (step_w, rate, clock_s, noise_w, load_noise_w) in enumerate(
        [
            (0.001, 10, 1.0, 0.2, None),
            (0.001, 10, 5.0, 0.2, None),
            (0.001, 10, "1.0", 0.2, None),
            (0.001, 1, "3.0", 0.2, None),
            (1.0, 1, None, 0.05, None),
            (1.0, 10, None, 0.05, 0.3),
            (0.4, 10, None, 0.02, 2.0),
            (1.0, 1, None, 0.7, 0.05),
            (0.1, 10, None, 0.0, 0.0),
        ]
    ):
        for seed in range(6):
            with table_row(number, seed):
                times_ns, powers_w = _trace(step_w, rate=rate, clock_s=clock_s, noise_w=noise_w, load_noise_w=load_noise_w, seed=seed)
                twice = np.sort(np.concatenate((np.arange(times_ns.size), np.arange(0, times_ns.size, 9))))
                for order in (np.arange(times_ns.size), twice):
                    arrays = (times_ns[order] + (np.diff(order, prepend=-1) == 0), powers_w[order], step_w, TIMED, IDLE)
                    assert hangs(*arrays) == []
                    assert overstays(*arrays) == []
                    assert clipping(*arrays[:4]) is None


def test_a_counter_that_stops_and_goes_on_hangs():
    """Its energy repeats; one that moves at every second read, or by whole steps, does not."""
    times_ns, powers_w = _trace(0.001, noise_w=0.5)
    energy_mj = np.cumsum(powers_w * np.diff(times_ns, prepend=0)) / 1e6

    def hangs_of(counted_mj):
        return hangs(times_ns[1:], np.diff(counted_mj) / np.diff(times_ns) * 1e6, None, TIMED, IDLE)

    assert hangs_of(energy_mj) == []
    assert len(hangs_of(_hung(times_ns, energy_mj, 30, 50))) == 1
    for coarse_mj in (np.repeat(energy_mj[::2], 2), np.floor(energy_mj / 10_000) * 10_000):
        assert hangs_of(coarse_mj) == []


def test_coarse_readings_that_miss_one_edge_of_the_load_hang():
    """Whole watts: the value of idle well into the load, or that of the load to the end of idle; not where both edges are as late."""
    times_ns, powers_w = _trace(1.0, rate=1, noise_w=0.4)
    for begin_s, end_s in [(10, 40), (70, 100)]:
        with table_row(begin_s):
            (fault,) = overstays(times_ns, _hung(times_ns, powers_w, begin_s, end_s), 1.0, TIMED, IDLE)
            assert fault.end_ns / S > end_s - 2
    assert overstays(times_ns + 4 * S, powers_w, 1.0, TIMED, IDLE) == []


def test_readings_that_pile_up_at_the_highest_one_show_the_end_of_a_range():
    """Of a fine sensor, under all or a part of the load; not of steps as large as the noise."""
    for step_w, at_w, expected in [(0.001, 6.0, True), (0.001, 6.2, True), (0.04, 5.8, True), (0.001, 7.0, False), (1.0, 6.0, False)]:
        with table_row(step_w, at_w):
            times_ns, powers_w = _trace(step_w)
            fault = clipping(times_ns, np.minimum(powers_w, at_w), step_w, TIMED)
            assert (fault is not None) == expected
            assert fault is None or fault.value == at_w


def test_exactly_nothing_among_watts_is_no_reading():
    """A plug that restarts; not one whose step is as large as the power, nor an idle power around 0."""
    for powers_w, step_w, expected in [
        ([3.0, 3.1, 0.0, 0.0, 3.0, 2.9], 0.1, 2),
        ([1.0, 0.0, 1.0, 0.0, 2.0, 1.0], 1.0, 0),
        ([0.2, 0.1, 0.0, -0.1, 0.1, 0.2], 0.1, 0),
        ([0.0, 0.0, 0.0], 0.1, 0),
    ]:
        with table_row(powers_w):
            assert nothing_shown(np.array(powers_w), step_w).sum() == expected


def test_a_spike_is_beyond_what_is_drawn_or_alone_and_far_above_all_others():
    """65,535 W in either direction, and 300 W for one reading of a board of 3 W; a peak of ten times idle stays."""
    quiet_w = np.full(50, 3.0)
    for power_w, expected in [(65_535.0, True), (-65_535.0, True), (300.0, True), (-300.0, True), (30.0, False), (120.0, False)]:
        with table_row(power_w):
            powers_w = quiet_w.copy()
            powers_w[7] = power_w
            assert spikes(powers_w, 1000.0).tolist() == [expected and number == 7 for number in range(50)]
    powers_w = quiet_w.copy()
    powers_w[7:10] = 300.0
    assert not spikes(powers_w, 1000.0).any()
