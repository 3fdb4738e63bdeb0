"""Facts about `edgemeter.agent.energy.power_series`."""

import pytest

from edgemeter.agent import samples
from edgemeter.agent.energy import power_series
from edgemeter.agent.energy.curve import CounterCurve, PowerCurve
from edgemeter.agent.energy.sampler import Trace
from edgemeter.agent.engine.job import Window
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import S, make_counter, make_description, make_trace

TIMED = Window(20 * S, 50 * S)


def test_the_energy_can_be_computed_again_from_the_record():
    """Packed and unpacked, the readings hold the same energy, of samples and of a counter."""
    trace = make_trace(lambda t: 3 + t % 7, 70, seed=4)
    values, taken = (samples.unpack(series) for series in power_series.pack([trace], TIMED.start_ns))
    again = [Reading(int(at) + TIMED.start_ns, power_w=float(value)) for at, value in zip(taken, values, strict=True)]
    exact = PowerCurve(trace.readings, trace.description).energy_mj(TIMED)
    assert PowerCurve(again, make_description()).energy_mj(TIMED) == exact > 0

    counter = make_counter(6.0, 70)
    values, taken = (samples.unpack(series) for series in power_series.pack([counter], TIMED.start_ns))
    again = [Reading(int(at) + TIMED.start_ns, energy_mj=float(value)) for at, value in zip(taken, values, strict=True)]
    assert CounterCurve(again, counter.description).energy_mj(TIMED) == pytest.approx(180_000)


def test_each_sensor_has_its_own_pair_of_series():
    """Named after it, with units; a sensor that gave nothing has none."""
    packed = power_series.pack([make_trace(lambda _: 1.0, 1), make_counter(1.0, 1), Trace("gone", None, ())], 0)
    assert [(series.name, series.unit) for series in packed] == [
        ("power.bench", "W"),
        ("power_at.bench", "ns"),
        ("energy.counter", "mJ"),
        ("power_at.counter", "ns"),
    ]


def test_readings_before_the_timed_part_have_negative_times():
    """The idle stretch before it is part of the trace."""
    _, taken = power_series.pack([make_trace(lambda _: 1.0, 70)], TIMED.start_ns)
    assert samples.unpack(taken)[0] == -20 * S
