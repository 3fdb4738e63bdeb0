import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.bundle.recompute import off_schedule
from edgemeter.agent.engine import schedule as schedules
from edgemeter.agent.engine.scenarios import scenario, steady
from edgemeter.agent.engine.scenarios.timing import FrameSchedule
from tests.fixtures.timing_world import World, plan

MS = 1_000_000
# The most that binding, waking up and reading the clock take in the simulated world.
NEAR_NS = 5_000


def offered(script, **changes):
    """Return the outcome of frames whose calls take the times that the script gives, ns.

    10 a second come unless they differ, and each is due when the next one comes.
    """
    world = World(script)
    settings = {"queries": 1, "seconds": 1.0, "rate_per_s": 10.0, "expected_ns": MS} | changes
    return world, schedules.run_steady(world.ticking_watch(), plan(**settings))


def numbers(timed):
    return timed.schedule.numbers(timed.arrivals_ns - timed.begin_ns).tolist()


def test_frames_arrive_by_the_schedule_and_end_with_it():
    """10 a second come every 100.67 ms in the first half of the shift.

    The timed part ends with the period of the last frame.
    """
    world, timed = offered(lambda _: 20 * MS)
    assert (timed.arrivals_ns - timed.begin_ns).tolist() == [
        round(number * 302 * MS / 3) for number in range(10)
    ]
    assert timed.end_ns - timed.begin_ns == round(3020 * MS / 3)
    assert world.now >= timed.end_ns
    assert timed.latency_ns == pytest.approx(np.full(10, 20 * MS), abs=NEAR_NS)
    frames = steady.steady_of(timed)
    assert (frames.frames, frames.dropped, frames.late, frames.missed_ratio) == (10, 0, 0, 0.0)
    assert frames.deadline_ms == 100.0


def test_a_model_that_takes_a_frame_and_a_half_misses_by_hand():
    """Of ten frames 3 are dropped, 4 are late and 3 are in time.

    Calls take 155 ms, a frame comes every 100.67, one may wait, and 175 ms are left to answer.

    0: 0 to 155. 1 waits from 100.67: 155 to 310, after 209.33 ms, late. 2 waits from 201.33, 3
    takes its place at 302: 310 to 465, 163 ms. 4 waits from 402.67: 465 to 620, 217.33 ms, late. 5
    waits, 6 takes its place: 620 to 775, 171 ms. 7: 775 to 930, 225.33 ms, late. 8 waits, 9 takes
    its place: 930 to 1,085, 179 ms, late.
    """
    _, timed = offered(lambda _: 155 * MS, deadline_ns=175 * MS)
    assert numbers(timed) == [0, 1, 3, 4, 6, 7, 9]
    assert timed.latency_ns / MS == pytest.approx(
        [155, 209.33, 163, 217.33, 171, 225.33, 179], abs=0.05
    )
    frames = steady.steady_of(timed)
    assert (frames.dropped, frames.late, frames.missed_ratio) == (3, 4, 0.7)
    load = scenario.load_of_timed(timed, 1, 10.0)
    assert (load.is_sustained, load.unserved, load.target_per_s) == (False, 3, 10.0)
    # All the time is worked, and ten frames of 155 ms a second would take half as much again.
    assert load.utilisation_ratio == pytest.approx(1.0, abs=1e-4)
    assert scenario.throughput_per_s("steady", timed, 7) == pytest.approx(7 / 1.085, rel=1e-4)


def test_a_stall_drops_the_oldest_and_its_answers_are_late():
    """Frame 3 takes 370 ms and is late, 4 and 5 are dropped, and 6 waits and is in time.

    The deadline is 100 ms. Frame 3: 302-672. 4, 5, 6 come at 403, 503, 604; only 6 waits. 6:
    672-692, 88 ms after its arrival: in time. 7 at 705.
    """
    _, timed = offered(lambda call: 370 * MS if call == 3 else 20 * MS)
    assert numbers(timed) == [0, 1, 2, 3, 6, 7, 8, 9]
    frames = steady.steady_of(timed)
    assert (frames.dropped, frames.late, frames.missed_ratio) == (2, 1, 0.3)
    # Only the pairs around frame 3 are off, among seven: 370 - 20 both ways, less 68 ms that 6
    # waited.
    assert frames.jitter.p90_ms == pytest.approx(282 + 0.4 * 68, abs=0.02)


class Oversleeping(World):
    """A world in which every sleep ends 350 ms late."""

    def sleep(self, seconds):
        super().sleep(seconds)
        self.now += 350 * MS


def test_late_wake_ups_are_no_work_of_the_model():
    """Six calls of 20 ms in 1,195 ms are 10% of the time, however late Edgemeter woke up.

    Ten calls a second would take 20% of it.

    0: 350 to 370. 1 to 3 arrived, one may wait: 3, 370 to 390. 4 is awaited: 753 to 773. 7: 773 to
    793. 8: 1,155 to 1,175. 9: to 1,195.
    """
    world = Oversleeping(lambda _: 20 * MS)
    timed = schedules.run_steady(
        world.ticking_watch(), plan(queries=1, seconds=1.0, rate_per_s=10.0, expected_ns=MS)
    )
    assert numbers(timed) == [0, 3, 4, 7, 8, 9]
    load = scenario.load_of_timed(timed, 1, 10.0)
    assert load.utilisation_ratio == pytest.approx(6 * 20 / 1195, rel=2e-3)
    assert load.is_sustained
    frames = steady.steady_of(timed)
    assert (frames.dropped, frames.late) == (4, 4)


def test_copying_the_inputs_of_frames_that_wait_takes_the_time_that_they_need():
    """Calls of 95 ms hold ten a second, but not with 10 ms to copy inputs of waiting frames.

    The model is busy for 90% of the time then.
    """

    class Copying(World):
        def bind(self, number, user=None):
            self.now += 10 * MS
            return super().bind(number, user)

    world = Copying(lambda _: 95 * MS)
    timed = schedules.run_steady(
        world.ticking_watch(), plan(queries=1, seconds=10.0, rate_per_s=10.0, expected_ns=MS)
    )
    load = scenario.load_of_timed(timed, 1, 10.0)
    assert not load.is_sustained
    assert load.utilisation_ratio == pytest.approx(95 / 105, abs=5e-3)


def test_a_rate_far_beyond_the_model_ends_on_schedule():
    """The last answer comes with the schedule, or a second after it at most.

    A million frames a second come to a model that takes 30 ms.
    """
    _, timed = offered(lambda _: 30 * MS, rate_per_s=1e6, seconds=0.5)
    assert timed.latency_ns.size + timed.unserved == 500_000
    assert timed.end_ns - timed.begin_ns <= 1_540 * MS
    frames = steady.steady_of(timed)
    assert frames.missed_ratio == 1.0
    load = scenario.load_of_timed(timed, 1, 1e6)
    assert (load.is_sustained, load.unserved) == (False, timed.unserved)
    assert 0.98 < load.utilisation_ratio <= 1.0


class Failing(World):
    """A world in which each fourth call fails after 150 ms."""

    def bind(self, number, user=None):
        call = super().bind(number, user)

        def attempt():
            if self.calls % 4 != 3:
                return call()
            self.calls += 1
            self.now += 150 * MS
            raise AnswerError("no slot", kind="http 503")

        return attempt


def test_a_frame_without_a_reply_of_the_server_is_dropped_and_counted_by_its_kind():
    """Frames 3 and 7 fail, and 4 and 8, which wait for them, are answered after 69 ms.

    Where all frames fail nothing is measured.
    """
    world = Failing(lambda _: 20 * MS)
    timed = schedules.run_steady(
        world.ticking_watch(), plan(queries=1, seconds=1.0, rate_per_s=10.0, expected_ns=MS)
    )
    assert numbers(timed) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert timed.latency_ns / MS == pytest.approx([20, 20, 20, 69.33, 20, 20, 69.33, 20], abs=0.05)
    assert (
        [failed.kind for failed in timed.failures],
        timed.unserved,
        steady.steady_of(timed).dropped,
    ) == (["http 503"] * 2, 2, 2)
    world.calls = 3
    with pytest.raises(MeasurementError, match="http 503: 1"):
        schedules.run_steady(
            world.ticking_watch(), plan(queries=1, seconds=0.1, rate_per_s=10.0, expected_ns=MS)
        )


def test_inputs_are_drawn_or_taken_in_order():
    """In order frame n takes input n, over and over.

    Else the same seed draws the same inputs, and all of them.
    """
    assert list(plan(in_order=True).drawn(5)) == [0, 1, 2, 3, 4]
    order = plan().drawn(5)
    assert order == plan().drawn(5) != plan(seed=4).drawn(5)
    assert set(order) == set(range(5))


def test_a_schedule_has_queries_and_seconds():
    """15 a second for an hour are 54,000 frames, and 0.07 a second for 100 s are 7.

    The latter product is above 7 by its last digit.
    """
    for rate, seconds, queries, frames in (
        (15.0, 3600.0, 128, 54_000),
        (0.07, 100.0, 1, 7),
        (15.0, 0.0, 64, 64),
        (0.01, 1.0, 1, 1),
    ):
        schedule = steady.schedule_of(plan(rate_per_s=rate, seconds=seconds, queries=queries))
        assert schedule.frames == frames
        assert schedule.length_ns == pytest.approx(frames / rate * 1e9, abs=100 * MS)
    assert steady.seconds(plan(rate_per_s=15.0, seconds=60.0)) == 60.0


def test_a_frame_that_is_answered_at_its_deadline_is_in_time():
    """A frame that takes a nanosecond longer is late."""
    schedule = FrameSchedule(15.0, 60 * MS, 2)
    assert steady.in_time(
        schedule, schedule.arrivals_ns(np.arange(2)), np.array([60 * MS, 60 * MS + 1])
    ).tolist() == [0]


RATES = (0.5, 3.0, 7.3, 10.0, 14.985, 15.0, 25.0, 29.97, 30.0, 50.0, 120.0)


@pytest.mark.parametrize("rate", RATES)
def test_as_many_frames_come_in_a_minute_as_were_asked_for(rate):
    """Each frame is at most a period, or 100 ms, later than at the exact rate.

    Gaps differ by 0.67% at most, and the moments tell the numbers of the frames.
    """
    schedule = FrameSchedule(rate, MS, round(rate * 600))
    arrivals_ns = schedule.arrivals_ns()
    assert schedule.length_ns == pytest.approx(schedule.frames / rate * 1e9, abs=1)
    later_ns = arrivals_ns - np.arange(schedule.frames) * 1e9 / rate
    assert later_ns.min() >= -1
    assert later_ns.max() == pytest.approx(min(1e9 / rate, 100 * MS), rel=0.07)
    assert np.diff(arrivals_ns) * rate / 1e9 == pytest.approx(
        np.ones(schedule.frames - 1), abs=0.0067
    )
    by_minute = np.histogram(arrivals_ns, np.arange(11) * 60e9)[0]
    exact = np.histogram(np.rint(np.arange(schedule.frames) * 1e9 / rate), np.arange(11) * 60e9)[0]
    assert by_minute.tolist() == exact.tolist()
    assert schedule.numbers(arrivals_ns).tolist() == list(range(schedule.frames))
    assert off_schedule(schedule, arrivals_ns) == 0


def worst_error(arrivals_s, period_s, tick_s):
    """Return how far the mean power that a sensor sees is from the true one, as a ratio.

    The sensor sees each tick, and its phase is the worst. Calls take 30% of the time between
    frames, with 6 W where the board idles at 2.
    """
    end_s = arrivals_s[-1] + period_s
    true_w = 2 + 4 * 0.3 * period_s * arrivals_s.size / end_s
    errors = []
    for phase in np.arange(8) / 8:
        seen_s = np.arange(arrivals_s[0] + phase * tick_s, end_s, tick_s)
        since_s = seen_s - arrivals_s[np.searchsorted(arrivals_s, seen_s, side="right") - 1]
        errors.append(abs(np.where(since_s < 0.3 * period_s, 6.0, 2.0).mean() / true_w - 1))
    return max(errors)


@pytest.mark.parametrize("seconds", [30, 45, 60])
@pytest.mark.parametrize(
    ("rate", "tick_ms"),
    [
        (25.0, 40.0),
        (25.0, 20.0),
        (50.0, 20.0),
        (100.0, 20.0),
        (15.0, 1000 / 15),
        (15.0, 1000 / 30),
        (30.0, 1000 / 30),
        (60.0, 1000 / 30),
    ],
)
def test_a_sensor_with_a_hidden_clock_sees_all_of_a_frame(rate, tick_ms, seconds):
    """A clock of half a frame, one frame or two is off by less than 2%.

    A clock that is 100 ppm or 1% away from them is off by up to 9%. At the exact rate it would be
    25% and more.
    """
    arrivals_s = FrameSchedule(rate, MS, round(rate * seconds)).arrivals_ns() / 1e9
    assert worst_error(arrivals_s, 1 / rate, tick_ms / 1000) < 0.02
    for away, limit in ((1e-4, 0.09), (0.01, 0.09), (0.03, 0.03)):
        assert (
            max(
                worst_error(arrivals_s, 1 / rate, tick_ms / 1000 * (1 + off))
                for off in (away, -away)
            )
            < limit
        )
    assert worst_error(np.arange(arrivals_s.size) / rate, 1 / rate, tick_ms / 1000) > 0.25
