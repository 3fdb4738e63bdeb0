"""Facts about `edgemeter.agent.energy.refusals`: what readings do not support, and what would; and what becomes of such a run."""

from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.refusals import is_frozen
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.machine.power_range import board_ranges
from tests.fixtures.power_traces import AFTER, BEFORE, TIMED, S, assess, energy_of, load_step, make_counter, make_trace
from tests.fixtures.rows import table_row
from tests.fixtures.sensor_worlds import World, draw_trial


def test_a_window_that_is_too_short_is_refused_with_what_it_needs():
    """10 s, 50 periods of the sensor, and 100 inferences; whichever is longest."""
    for timed, inferences, period_ms, needs in [
        (Window(20 * S, 22 * S), 1000, 100.0, "at least 10 s"),
        (Window(20 * S, 45 * S), 1000, 1000.0, "at least 50 s"),
        (Window(20 * S, 50 * S), 64, 100.0, "at least 46.9 s"),
        (Window(20 * S, 50 * S), 0, 100.0, "at least 3000 s"),
    ]:
        energy, reason = assess(make_trace(load_step, 70, period_ms=period_ms), timed, BEFORE, AFTER, inferences)
        assert energy is None, f"{timed!r}, {inferences!r}, {period_ms!r}"
        assert needs in reason, f"{timed!r}, {inferences!r}, {period_ms!r}"


def test_readings_that_are_missing_end_in_a_refusal():
    """2 s without a reading in 30 s are too many; 0.5 s are not."""

    def without(begin_s, end_s):
        trace = make_trace(load_step, 70)
        readings = tuple(reading for reading in trace.readings if not begin_s * S < reading.taken_ns < end_s * S)
        return replace(trace, readings=readings, failures=9)

    energy, reason = assess(without(30, 32), TIMED, BEFORE, AFTER, 1000)
    assert energy is None
    assert "missing in 2 s of the 30 s" in reason
    assert "9 reads failed" in reason
    assert energy_of(without(30, 30.5)).gross_mj == pytest.approx(150)


def test_a_sensor_that_never_spoke_or_is_blocked_gives_its_own_reason():
    """The reason of the driver, not one of ours."""
    energy, reason = assess(SensorTrace("rapl", None, (), 0, "may not read it"), TIMED, None, None, 1000)
    assert (energy, reason) == (None, "rapl: may not read it")
    # As it is set up, its figures may be wrong by a factor.
    trace = make_trace(load_step, 70, blocked="its shunt is the driver's default: confirm shunt_ohm")
    assert assess(trace, TIMED, BEFORE, AFTER, 1000) == (None, "bench: its shunt is the driver's default: confirm shunt_ohm")


def test_a_counter_with_coarse_steps_is_refused_with_the_time_it_needs():
    """A smart plug's counter moves by 770 J; 180 J were used."""
    energy, reason = assess(make_counter(30.0, 300, step_mj=770_000.0), Window(20 * S, 80 * S), None, None, 1000)
    assert energy is None
    assert "is 770 J" in reason
    assert "time at least" in reason


def test_a_counter_that_stands_still_or_jumps_back_is_refused():
    """Neither is an energy."""
    still = make_counter(0.0, 70)
    assert "did not move" in assess(still, TIMED, None, None, 1000)[1]
    trace = make_counter(6.0, 70)
    reset = tuple(replace(r, energy_mj=r.energy_mj - 200_000) if r.taken_ns > 40 * S else r for r in trace.readings)
    assert "backwards" in assess(replace(trace, readings=reset), TIMED, None, None, 1000)[1]


def test_a_power_that_no_machine_draws_gives_no_energy_but_its_likely_cause():
    """At or below 0 W over the timed part: named by the kind of sensor, in one line, before lengths are reported."""
    for power_w, scope, sensor, words in [
        (-3.066, "wall-ac", "shelly:plug", "clamp"),
        (0.0, "wall-ac", "tasmota:plug", "below what the plug can show"),
        (-3.066, "board-input", "fnirsi:FNB58", "cable"),
        (-3.066, "board-input", "hwmon:ina226:1-0040", "gain = -1"),
        (0.0, "board-input", "fnirsi:FNB58", "bypasses"),
        (-0.1, "soc-rails", "jetson_thor", "offset"),
    ]:
        with table_row(power_w, sensor):
            for timed in (TIMED, Window(20 * S, 22 * S)):
                energy, reason = assess(
                    make_trace(lambda _, power_w=power_w: power_w, 70, scope=scope, id=sensor), timed, BEFORE, AFTER, 1000
                )
                assert energy is None
                assert f"mean of {power_w:.3g} W over the timed part" in reason
                assert words in reason
                assert "\n" not in reason


def test_an_idle_power_that_no_machine_draws_gives_no_energy():
    """A plug that shows nothing below its limit hides a part of the load too; idle before and after count alike."""
    for before_w, after_w in [(0.0, 2.0), (2.0, 0.0), (-0.2, -0.2)]:
        with table_row(before_w, after_w):
            trace = make_trace(
                lambda t, idle=(before_w, after_w): 5.0 if 20 <= t < 50 else idle[t >= 50], 70, scope="wall-ac", id="shelly:plug"
            )
            energy, reason = assess(trace, TIMED, BEFORE, AFTER, 1000)
            assert energy is None
            assert "W while idle, which no machine draws" in reason
            assert assess(trace, TIMED, None, None, 1000)[1] is None


def test_a_sensor_is_frozen_if_it_repeats_its_idle_value_through_the_load():
    """Whether it hung from the start or while the machine idled; not one that lags, and not without idle to compare with."""
    for number, (power_of, before, after, expected) in enumerate(
        [
            (lambda _: 3.25, BEFORE, AFTER, True),
            (lambda t: 2.0 + t / 100 if t < 15 else 3.25, BEFORE, AFTER, True),
            (lambda t: 5.0 if 20 <= t < 50 else 2.0, BEFORE, AFTER, False),
            (lambda t: 5.0 if 20 <= t < 53 else 2.0, BEFORE, AFTER, False),
            (lambda t: 5.0 if 20 <= t < 53 else 2.0, None, AFTER, False),
            (lambda _: 3.25, None, AFTER, True),
            (lambda _: 3.25, None, None, False),
            (lambda _: 3.25, Window(0, S // 5), None, False),
        ]
    ):
        assert is_frozen(make_trace(power_of, 70), TIMED, before, after) == expected, f"row {number}"


PI_5 = board_ranges()[0]
USUAL = World(timed_s=30.0, idle_s=10.0, noise_w=0.1, step_w=0.001, edge_s=0.005)


def test_a_sensor_that_fails_while_it_is_read_gives_no_energy_but_what_it_showed_and_what_to_do():
    """The same sensor in good health gives an energy."""
    trial = draw_trial(USUAL, np.random.default_rng(3))
    run, readings = replace(trial.run, draws=PI_5), trial.trace.readings
    at_s, shown_w = np.array([reading.taken_ns / S for reading in readings]), np.array([reading.power_w for reading in readings])

    def outcome(powers_w, named):
        read = tuple(replace(reading, power_w=float(power_w)) for reading, power_w in zip(readings, powers_w, strict=True))
        return per_inference.assess(SensorTrace("meter", replace(trial.trace.description, **named), read), run)

    assert outcome(shown_w, {})[1] is None
    for named, fault, words in [
        ({}, lambda at_s, shown_w: np.where(at_s < 14, shown_w, shown_w[np.argmax(at_s >= 14) - 1]), "it hangs"),
        ({}, lambda _, shown_w: np.minimum(shown_w, 6.0), "show exactly 6 W, and none shows more: its range ends there"),
        ({}, lambda at_s, shown_w: np.where(np.arange(at_s.size) % 200 == 0, 2000.0, shown_w), "readings show up to 2,000 W"),
        ({}, lambda _, shown_w: 1000 * shown_w, "a Raspberry Pi 5 draws at most 40 W"),
        ({"id": "hwmon:ina226:1-0040"}, lambda _, shown_w: 10 * shown_w, "set shunt_ohm in [sensors.hwmon]"),
        ({}, lambda _, shown_w: 0.1 * shown_w, "draws at least 1 W"),
    ]:
        with table_row(words):
            energy, reason = outcome(fault(at_s, shown_w), named)
            assert energy is None
            assert words in reason
            assert "\n" not in reason


def test_a_reading_of_nothing_among_watts_is_left_out():
    """A plug that shows 0 W for two of its sixty readings: the energy is that of the others, and the reads count as failed."""
    trace = make_trace(lambda t: 0.0 if 30 <= t < 32 else load_step(t), 90, period_ms=1000.0, resolution_w=0.1, scope="wall-ac")
    assert energy_of(trace, timed=Window(20 * S, 80 * S), after=None).mean_power_w == pytest.approx(3.5, abs=0.1)
