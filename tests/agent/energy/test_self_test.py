"""Facts about `edgemeter.agent.energy.self_test` and the answers to its load."""

import dataclasses
import math
import random

import numpy as np
import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.energy import self_test
from edgemeter.agent.energy.self_test import judged, read_under_load, turns
from edgemeter.agent.energy.step_response import Switched
from edgemeter.agent.power import Description, Reading
from tests.fixtures.rows import table_row
from tests.fixtures.tested_sensors import SENSORS, SyntheticSensor, readings_of


def _draw(seed):
    return random.Random(seed)  # noqa: S311 - spreads moments, guards nothing


def _holds(measured, truth):
    return measured.low - 1e-9 <= truth <= measured.high + 1e-9


def test_the_load_and_its_integral_agree():
    """On from 1 to 2 s and from 4 to 5 s; a mean and a lag follow from that."""
    load = Switched(np.array([1.0, 2.0, 4.0, 5.0]), 6.0)
    at_s = np.array([0.5, 1.5, 3.0, 4.5, 5.5])
    assert load.on_s(at_s) == pytest.approx([0, 0.5, 1, 1.5, 2])
    assert load.mean(at_s, 1.0) == pytest.approx([0, 0.5, 0, 0.5, 0.5])
    assert load.lagged(np.array([0.5, 2.0]), 1.0) == pytest.approx([0, 1 - math.exp(-1)])


def test_a_sensor_that_lags_differs_from_one_that_averages():
    """Half a second of delay in both, by another shape; each within its bounds."""
    lag = judged(readings_of(SyntheticSensor(lag_s=0.5, read_s=0.03), 1, 40), SyntheticSensor(read_s=0.03).describe(), "board")
    mean = judged(readings_of(SyntheticSensor(window_s=1.0, read_s=0.03), 1, 40), SyntheticSensor(read_s=0.03).describe(), "board")
    for measured in (lag, mean):
        assert measured.sees_load
        assert _holds(measured.delay_s, 0.5), measured.delay_s
    assert (lag.window_s.value, _holds(lag.lag_s, 0.5)) == (0.0, True)
    assert _holds(mean.window_s, 1.0)
    assert _holds(mean.lag_s, 0.0)


def test_what_makes_a_sensor_unfit_is_named():
    """One that hangs, one that is clipped, one of another board: none of them gets a delay."""
    for name, finding in (
        ("hangs", "from 25 s on it repeated"),
        ("clipped", "no more than 6 W"),
        ("another board's", "does not show the load"),
    ):
        with table_row(name):
            sensor = dataclasses.replace(SENSORS[name], read_s=0.05)
            measured = judged(readings_of(sensor, 0, 40.0), sensor.describe(), "board")
            assert finding in measured.findings[0]
            assert measured.delay_s.value is None
            assert measured.delay_s.reason


def test_without_load_only_what_needs_none_is_reported():
    """Its steps and gaps; nobody takes that for a sensor that sees no load."""
    sensor = SENSORS["steps of .1 W"]
    measured = judged(readings_of(sensor, 0), sensor.describe(), "board", is_loaded=False)
    assert _holds(measured.resolution, 0.1)
    assert measured.delay_s.reason == "no load was driven (--no-load)"
    assert measured.findings == ()


class SimulatedSensor:
    """A lag of half a second behind a load that it is told of, in simulated time; each seventh read fails."""

    def __init__(self):
        self.now_s, self.level_w, self.shown_w, self.reads, self.switches = 0.0, 3.0, 3.0, 0, []

    def describe(self):
        """Return a description without the delay."""
        return Description("simulated", "board-input", (), "power", 20.0)

    def switch(self, on):
        """Note the load, which the power follows at once."""
        self.switches.append((self.now_s, on))
        self.level_w = 8.0 if on else 3.0

    def sleep(self, seconds):
        """Let time pass."""
        self.shown_w += (self.level_w - self.shown_w) * -math.expm1(-seconds / 0.5)
        self.now_s += seconds

    def read(self):
        """Take 20 ms for a reading."""
        self.sleep(0.02)
        self.reads += 1
        if self.reads % 7 == 0:
            raise TransientError("no answer")
        return Reading(int(self.now_s * 1e9), power_w=self.shown_w + _draw(self.reads).gauss(0, 0.02))


def test_the_test_runs_by_the_clock_that_it_is_given():
    """A minute in no time; the load is off at its end, progress is reported, and the failed reads are counted."""
    sensor, reports = SimulatedSensor(), []
    lengths = turns(_draw(3), 40.0)
    readings = read_under_load(
        sensor,
        sensor.switch,
        lengths,
        lambda *step: reports.append(step),
        lambda: int(sensor.now_s * 1e9),
        lambda s: sensor.sleep(max(s, 1e-4)),
    )
    assert sensor.switches[-1][1] is False
    assert readings.failures == sensor.reads // 7
    assert reports[-1][1:] == (len(lengths) - 1, len(lengths))
    measured = judged(readings, sensor.describe(), "board")
    assert _holds(measured.delay_s, 0.5), measured.delay_s


@pytest.mark.nightly
@pytest.mark.parametrize("name", SENSORS)
def test_every_property_is_within_its_bounds_or_not_reported(name):
    """Two draws of each sensor; the mean delay and the clock of a single draw may miss by chance, once."""
    misses = []
    for seed in (1, 2):
        sensor = SENSORS[name]
        measured = judged(readings_of(sensor, seed), sensor.describe(), "board")
        truths = {field: truth for field, truth in sensor.truths().items() if truth is not None}
        misses += [
            (field, truth, getattr(measured, field))
            for field, truth in truths.items()
            if getattr(measured, field).value is not None and not _holds(getattr(measured, field), truth)
        ]
    assert len(misses) <= 1, misses


def test_a_load_whose_processes_do_not_start_is_no_load(monkeypatch):
    """A test with less load than it knows of would measure another sensor."""
    monkeypatch.setattr(self_test, "READY_S", 0.0)
    with pytest.raises(UnavailableError, match="did not start"), self_test.switched_load(1):
        pass
