"""Facts about `edgemeter.agent.energy.refusals`: what readings do not support, and what would."""

import random
from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.per_inference import assess as assess_run
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from tests.fixtures.power_traces import (
    AFTER,
    BEFORE,
    TIMED,
    S,
    assess,
    energy_of,
    load_step,
    make_counter,
    make_trace,
)
from tests.fixtures.rows import table_row


def noisy(power, seed=5, scatter_w=0.05):
    draw = random.Random(seed)  # noqa: S311 - repeatable
    return lambda t: power(t) + draw.gauss(0, scatter_w)


def reason_of(trace):
    energy, reason = assess(trace, TIMED, BEFORE, AFTER, 1000)
    assert energy is None
    assert "\n" not in reason
    return reason


def test_an_energy_takes_ten_new_values():
    """Repeated readings do not count, and the reason says how long to measure."""
    for timed, period_ms, power, needs in [
        (
            Window(20 * S, 20 * S + S // 2),
            100.0,
            load_step,
            "it gave 5 new values in 0.5 s, but an energy needs 10: measure for 1.1 s",
        ),
        (TIMED, 5000.0, load_step, "it gave 6 new values in 30 s"),
        (TIMED, 1000.0, lambda t: load_step(t) + t // 6 / 1000, "measure for"),
    ]:
        with table_row(timed, period_ms):
            energy, reason = assess(
                make_trace(power, 70, period_ms=period_ms), timed, BEFORE, AFTER, 1000
            )
            assert energy is None
            assert needs in reason


def test_readings_that_are_missing_end_in_a_refusal():
    """4 s without a reading in 30 s are too many, and 0.4 s are not."""

    def without(begin_s, end_s):
        trace = make_trace(load_step, 70)
        readings = tuple(
            reading for reading in trace.readings if not begin_s * S < reading.taken_ns < end_s * S
        )
        return replace(trace, readings=readings, failures=9)

    reason = reason_of(without(30, 34))
    assert "missing for 4 s of 30 s" in reason
    assert "9 reads failed" in reason
    assert energy_of(without(30, 30.4)).gross_mj == pytest.approx(150, rel=0.01)


def test_a_sensor_that_is_held_back_is_not_told_to_measure_longer():
    """A sensor of ten values a second that gave three in 30 s is blocked by something."""
    trace = make_trace(load_step, 70)
    few = [
        reading
        for reading in trace.readings
        if reading.taken_ns < 20.3 * S or reading.taken_ns >= 50 * S
    ]
    reason = reason_of(
        replace(trace, readings=tuple(few), ended="its driver failed with RuntimeError: i2c")
    )
    assert (
        "it gave 3 readings in 30 s: find out what blocks it; its driver failed with "
        "RuntimeError: i2c"
    ) in reason


def test_a_sensor_that_never_spoke_or_is_blocked_gives_its_own_reason():
    """The reason is that of the driver and not one of ours."""
    energy, reason = assess(
        SensorTrace("rapl", None, (), 0, "may not read it"), TIMED, None, None, 1000
    )
    assert (energy, reason) == (None, "rapl: may not read it")
    # As it is set up, its figures may be wrong by a factor.
    trace = make_trace(
        load_step, 70, blocked="its shunt is the driver's default: confirm shunt_ohm"
    )
    assert assess(trace, TIMED, BEFORE, AFTER, 1000) == (
        None,
        "bench: its shunt is the driver's default: confirm shunt_ohm",
    )


def test_a_counter_of_coarse_steps_or_that_jumps_back_gives_no_energy():
    """A smart plug's counter moves by 770 J, and a reset is no energy."""
    energy, reason = assess(
        make_counter(30.0, 300, step_mj=770_000.0), Window(20 * S, 80 * S), None, None, 1000
    )
    assert energy is None
    assert "new values in 60 s" in reason
    trace = make_counter(6.0, 70)
    reset = tuple(
        replace(r, energy_mj=r.energy_mj - 200_000) if r.taken_ns > 40 * S else r
        for r in trace.readings
    )
    assert "backwards" in reason_of(replace(trace, readings=reset))


def test_zero_watts_or_less_is_drawn_by_no_running_machine():
    """Zero or negative power comes from a sensor's fault; only a GPU may show none while idle.

    The faults are a turned clamp, a plug that shows nothing below its limit, and a meter that
    restarts.
    """
    for power, scope, is_refused in [
        (lambda _: -3.1, "board-input", True),
        (lambda _: 0.0, "wall-ac", True),
        (lambda t: 5.0 if 20 <= t < 50 else 0.0, "wall-ac", True),
        (lambda t: 0.0 if 30 <= t < 31 else 5.0, "board-input", True),
        (lambda t: 0.0 if 30 <= t < 30.1 else load_step(t), "board-input", False),
        (lambda t: 5.0 if 20 <= t < 50 else 0.0, "gpu-board", False),
    ]:
        trace = make_trace(noisy(power, scatter_w=0.0), 70, scope=scope)
        if is_refused:
            assert "0 W or less" in reason_of(trace)
        else:
            assert energy_of(trace).gross_mj > 0


def test_a_sensor_that_hangs_gives_no_energy():
    """A sensor that hangs until the end is refused, whatever its steps.

    One that hangs for a while is refused if its values never repeat by chance.
    """
    for step_w, begin_s, end_s, is_refused in [
        (0.0, 25, 99, True),
        (0.1, 25, 99, True),
        (1.0, 25, 99, True),
        (0.0, 30, 37, True),
        (0.0, 30, 30.3, False),
        (1.0, 30, 34, False),
    ]:
        with table_row(step_w, begin_s, end_s):
            trace = make_trace(noisy(load_step), 70, step_w=step_w, period_ms=200.0)
            value_w = next(
                reading.power_w for reading in trace.readings if reading.taken_ns >= begin_s * S
            )
            readings = tuple(
                replace(r, power_w=value_w) if begin_s * S <= r.taken_ns < end_s * S else r
                for r in trace.readings
            )
            energy, reason = assess(replace(trace, readings=readings), TIMED, BEFORE, AFTER, 1000)
            assert (energy is None) == is_refused
            assert not is_refused or "hangs" in reason


def test_a_load_that_is_often_at_one_power_does_not_hang():
    """Seven equal readings in a row are chance, and twenty are not.

    A third of the readings show bursts, in steps of .1 W at 1 Hz.
    """
    draw = random.Random(8)  # noqa: S311 - repeatable
    powers_w = (
        [2.0] * 20
        + [round(draw.uniform(6, 7), 1) if draw.random() < 1 / 3 else 4.0 for _ in range(60)]
        + [2.0] * 20
    )
    timed, after = Window(20 * S, 80 * S), Window(80 * S, 100 * S)
    for equal, is_refused in ((7, False), (20, True)):
        powers_w[40 : 40 + equal] = [4.0] * equal
        trace = make_trace(lambda t: powers_w[min(int(t), 99)], 100, period_ms=1000.0, step_w=0.1)
        _, reason = assess(trace, timed, BEFORE, after, 1000)
        assert ("hangs" in (reason or "")) == is_refused


def test_readings_that_pile_up_at_the_highest_show_the_end_of_a_range():
    """A fifth of the readings are 5.2 W exactly, while whole watts pile up by themselves."""
    draw = random.Random(3)  # noqa: S311 - repeatable
    swinging = [draw.uniform(3.0, 7.0) for _ in range(701)]
    clipped = make_trace(lambda t: min(swinging[int(t * 10)], 5.2) if 20 <= t < 50 else 2.0, 70)
    assert "its range ends there" in reason_of(clipped)
    assert (
        energy_of(make_trace(lambda t: swinging[int(t * 10)] if 20 <= t < 50 else 2.0, 70)).gross_mj
        > 0
    )
    assert (
        energy_of(
            make_trace(lambda t: swinging[int(t * 10)] if 20 <= t < 50 else 2.0, 70, step_w=1.0)
        ).gross_mj
        > 0
    )


def test_a_clock_in_step_with_the_queries_gives_no_energy():
    """Values and queries that both come every 100 ms may show the same part of each query.

    The values come by the sensor's own clock.
    """
    draw = random.Random(7)  # noqa: S311 - repeatable
    values = [draw.gauss(0, 0.1) for _ in range(800)]
    trace = make_trace(lambda t: load_step(t) + values[int(t * 10)], 70, seed=8)
    exact = np.arange(300) * S // 10 + 20 * S
    for starts_ns, is_refused in (
        (exact, True),
        (np.sort(np.random.default_rng(1).integers(20 * S, 50 * S, 300)), False),
    ):
        queries = Queries(starts_ns, np.full(300, S // 50), 50 * S)
        energy, reason = assess_run(trace, EnergyRun(TIMED, BEFORE, AFTER, 300, queries))
        assert (energy is None) == is_refused
        assert not is_refused or "its own clock" in reason
