import itertools
import logging
import random
import statistics
import time

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.contract import samples
from edgemeter.agent.energy import sampler
from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.sampler import ReadSchedule, Sampler, SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import S, make_counter, make_description, make_trace


class _Scripted:
    """A sensor that follows its script, then repeats the last line."""

    def __init__(self, *script, period_ms=5.0, describes=True):
        self.script = list(script)
        self.period_ms = period_ms
        self.describes = describes
        self.reads = 0

    def describe(self):
        if not self.describes:
            message = "not plugged in: plug it in"
            raise UnavailableError(message)
        return make_description(period_ms=self.period_ms)

    def read(self):
        line = self.script[min(self.reads, len(self.script) - 1)]
        self.reads += 1
        if isinstance(line, Exception):
            raise line
        return Reading(taken_ns=time.monotonic_ns(), power_w=line)

    def close(self):
        pass


def _sample(sensor):
    reading = Sampler({"one": sensor}, seed=1, wait=lambda _, __: sensor.reads > len(sensor.script))
    assert reading.traces()["one"].readings == ()
    reading.start()
    reading.start()
    reading.stop()
    reading.stop()
    return reading.traces()["one"]


def test_readings_come_once_a_period_on_average_and_at_all_places_of_any_clock_of_that_period():
    """Readings must not keep in step with a clock that ticks once a period.

    It ticks between two readings in most cases and not in all, and no span is much longer than the
    others.
    """
    schedule = ReadSchedule(1000, 100, random.Random(2))  # noqa: S311 - repeatable
    moments = [1000]
    for _ in range(2000):
        moments.append(schedule.after(moments[-1]))
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert statistics.fmean(gaps) == pytest.approx(100, rel=0.02)
    assert max(gaps) <= 250
    for phase in range(0, 100, 10):
        repeats = sum(
            (after - phase) // 100 == (before - phase) // 100
            for before, after in itertools.pairwise(moments)
        )
        assert 0.1 < repeats / len(gaps) < 0.3


def test_a_failed_reading_is_counted_and_the_next_one_taken():
    """A TransientError and a reading that is not a number both count as failures."""
    sensor = _Scripted(3.0, TransientError("no answer"), float("nan"), None, 4.0)
    trace = _sample(sensor)
    assert (trace.failures, trace.failure) == (3, "no answer")
    assert [reading.power_w for reading in trace.readings] == [3.0, 4.0, 4.0]


def test_a_sensor_that_is_gone_or_cannot_be_described_ends_its_trace_with_its_reason(caplog):
    """The readings so far are kept, and the run goes on without energy."""
    caplog.set_level(logging.INFO)
    trace = _sample(_Scripted(3.0, 3.0, UnavailableError("unplugged: plug it in again")))
    assert (len(trace.readings), trace.ended) == (2, "unplugged: plug it in again")
    assert "unplugged" in caplog.text
    trace = _sample(_Scripted(3.0, describes=False))
    assert (trace.description, trace.readings, trace.ended) == (
        None,
        (),
        "not plugged in: plug it in",
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_plug_in_with_a_bug_does_not_look_like_a_silent_sensor():
    """Its traceback goes to the log, and the trace states what it raised."""
    trace = _sample(_Scripted(3.0, ZeroDivisionError("bug")))
    assert trace.ended == "its driver failed with ZeroDivisionError: bug"


TIMED = Window(20 * S, 50 * S)


def test_the_energy_can_be_computed_again_from_the_record():
    """The readings of samples and of a counter hold the same energy after packing."""
    trace = make_trace(lambda t: 3 + t % 7, 70, seed=4)
    values, times = (
        samples.unpack(series) for series in sampler.pack_traces([trace], TIMED.start_ns)
    )
    unpacked = [
        Reading(int(at) + TIMED.start_ns, power_w=float(value))
        for at, value in zip(times, values, strict=True)
    ]
    exact = Curve(trace.readings, trace.description).energy_mj(TIMED)
    assert Curve(unpacked, make_description()).energy_mj(TIMED) == exact > 0

    counter = make_counter(6.0, 70)
    values, times = (
        samples.unpack(series) for series in sampler.pack_traces([counter], TIMED.start_ns)
    )
    unpacked = [
        Reading(int(at) + TIMED.start_ns, energy_mj=float(value))
        for at, value in zip(times, values, strict=True)
    ]
    assert Curve(unpacked, counter.description).energy_mj(TIMED) == pytest.approx(180_000)


def test_each_sensor_has_its_own_pair_of_series():
    """The series are named after the sensor and have units; one without readings has none."""
    packed = sampler.pack_traces(
        [make_trace(lambda _: 1.0, 1), make_counter(1.0, 1), SensorTrace("gone", None, ())], 0
    )
    assert [(series.name, series.unit) for series in packed] == [
        ("power.bench", "W"),
        ("power_at.bench", "ns"),
        ("energy.counter", "mJ"),
        ("power_at.counter", "ns"),
    ]
