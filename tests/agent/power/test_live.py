"""Facts about `edgemeter.agent.power.live`."""

import pytest

from edgemeter.agent.errors import TransientError
from edgemeter.agent.power import Reading
from edgemeter.agent.power.live import look
from tests.fixtures.power_traces import make_description


class _Plays:
    def __init__(self, *readings, **described):
        self._readings = iter(readings)
        self._description = make_description(**described)

    def describe(self):
        return self._description

    def read(self):
        reading = next(self._readings)
        if isinstance(reading, Exception):
            raise reading
        return reading


def test_a_power_sensor_shows_its_reading():
    """At once."""
    assert look("x", _Plays(Reading(1, power_w=-0.4)), sleep=pytest.fail).power_w == -0.4


def test_a_counter_shows_how_fast_it_moves():
    """2.5 J in half a second are 5 W."""
    readings = Reading(0, energy_mj=1000.0), Reading(500_000_000, energy_mj=3500.0)
    assert look("x", _Plays(*readings, kind="energy"), sleep=lambda _: None).power_w == pytest.approx(5.0)


def test_a_counter_that_stands_still_shows_no_power():
    """Not zero: it may move in coarse steps."""
    readings = Reading(0, energy_mj=1000.0), Reading(500_000_000, energy_mj=1000.0)
    assert look("x", _Plays(*readings, kind="energy"), sleep=lambda _: None).power_w is None


def test_a_counter_that_knows_its_power_shows_it():
    """Without a second reading."""
    assert look("x", _Plays(Reading(0, energy_mj=1.0, power_w=4.5), kind="energy"), sleep=pytest.fail).power_w == 4.5


def test_a_reading_that_fails_is_shown_with_its_reason():
    """A list of sensors goes on."""
    shown = look("x", _Plays(TransientError("busy")))
    assert (shown.power_w, shown.error) == (None, "busy")
    assert shown.description is not None
