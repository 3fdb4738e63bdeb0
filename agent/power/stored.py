"""The self-tests that a board keeps of its sensors, and the sensors that are described by them.

What a driver states stays, because it holds for every load and was published or read from the chip; what it does not state comes from the
self-test, with its date. Where the two contradict each other the description has a warning, so that neither is believed unseen.
"""

import dataclasses
import hashlib
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.power import Description, PowerSensor, Reading
from edgemeter.agent.power.values import AVERAGING, Averaging

SELF_TESTS_FOLDER = "self-tests"
# What a self-test measures of how readings follow the power.


class MeasuredProperty(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A property of the sensor with its 95% bounds; without a value, `reason` is why the test does not tell it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class SelfTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of a sensor that a known load on the processor showed; times are s, powers W, the `resolution` of a counter mJ.

    `delay_s` is the mean delay of a reading behind the power, all of it; the averaging window, the lag beyond half of it, the sensor's own
    clock and the share of the time that it looks at are its parts. `findings` are what makes the sensor unfit, in sentences.
    """

    board: str
    sensor: str
    made_at: str
    test_s: float
    readings: int
    failures: int
    sees_load: bool
    step: MeasuredProperty
    delay_s: MeasuredProperty
    window_s: MeasuredProperty
    lag_s: MeasuredProperty
    update_interval_s: MeasuredProperty
    seen_ratio: MeasuredProperty
    resolution: MeasuredProperty
    reading_interval_s: float
    longest_gap_s: float
    findings: tuple[str, ...] = ()


def self_test_path(board: str, sensor: str) -> Path:
    """Return where the self-test of this sensor on this board lies."""
    return home() / SELF_TESTS_FOLDER / f"{hashlib.sha256(f'{board} {sensor}'.encode()).hexdigest()[:12]}.json"


def save_self_test(test: SelfTest) -> Path:
    """Write the self-test in place of an earlier one and return its file; raises ConfigError if it cannot be written."""
    return durable_file.write_struct(self_test_path(test.board, test.sensor), test)


def find_self_test(board: str | None, sensor: str) -> SelfTest | None:
    """Return the self-test of this sensor on this board, None where there is none.

    Raises:
        ConfigError: the file is damaged, cannot be read, or is not of this board and sensor.
    """
    if board is None:
        return None
    path = self_test_path(board, sensor)
    test = durable_file.read_struct(path, SelfTest, "self-test", "delete it and check the sensor again")
    if test is not None and (test.board, test.sensor) != (board, sensor):
        raise ConfigError(f"self-test {str(path)!r} is of sensor {test.sensor!r} on board {test.board!r}: delete it")
    return test


def contradictions(test: SelfTest, description: Description) -> tuple[str, ...]:
    """Return where the self-test contradicts what the driver states of the sensor, in sentences."""
    pairs = [(name, getattr(description.averaging, name, None), getattr(test, name)) for name in AVERAGING]
    resolution = description.resolution_mj if description.kind == "energy" else description.resolution_w
    unit = "mJ" if description.kind == "energy" else "W"
    pairs.append((f"resolution ({unit})", resolution or None, test.resolution))
    return tuple(
        f"{name} is described as {value:.3g}, and the self-test of {test.made_at[:10]} shows {measured.value:.3g} "
        f"({measured.low:.3g} to {measured.high:.3g})"
        for name, value, measured in pairs
        if value is not None and measured.value is not None and not (measured.low or 0.0) <= value <= (measured.high or 0.0)
    )


class CheckedSensor(PowerSensor):
    """Reads a sensor, and describes what its driver leaves open as its self-test showed it."""

    def __init__(self, sensor: PowerSensor, test: SelfTest) -> None:
        self._sensor, self._test = sensor, test

    def read(self) -> Reading:
        """Return the newest reading."""
        return self._sensor.read()

    def close(self) -> None:
        """Close the sensor."""
        self._sensor.close()

    def describe(self) -> Description:
        """Return the sensor's description, completed; contradictions are among its warnings."""
        description, test = self._sensor.describe(), self._test
        described = description.averaging or Averaging()
        unstated = [name for name in AVERAGING if getattr(described, name) is None and getattr(test, name).value is not None]
        averaging = dataclasses.replace(
            described,
            **{name: getattr(test, name).value for name in unstated},
            sources={**described.sources, **dict.fromkeys(unstated, "self-test")},
        )
        resolution = test.resolution.value
        is_counter = description.kind == "energy"
        return dataclasses.replace(
            description,
            averaging=averaging if unstated else description.averaging,
            resolution_w=resolution if description.resolution_w is None and not is_counter else description.resolution_w,
            resolution_mj=resolution if description.resolution_mj is None and is_counter else description.resolution_mj,
            warnings=(*description.warnings, *test.findings, *contradictions(test, description)),
        )
