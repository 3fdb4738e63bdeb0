"""The files that a board keeps of its sensors (calibrations, self-tests), and the sensors that read or describe by them.

What a driver states stays, because it holds for every load and was published or read from the chip; what it does not state comes from the
self-test, with its date. Where the two contradict each other the description has a warning, so that neither is believed unseen.
"""

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract.record_figures import Averaging, Scope
from edgemeter.agent.power import Description, PowerSensor, Reading

CALIBRATIONS_FOLDER = "calibrations"
# How far beyond the calibrated power the line is still believed, as a share of the calibrated span.
BEYOND_RATIO = 0.25


class SensorCalibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """true power = offset_w + gain x shown power, for one sensor on one board; uncertainties are standard ones (k = 1).

    `gain_u_ratio` and `offset_u_w` hold the fit's and the reference instrument's together; None of the gain where nobody knows the
    reference's. A `gain` corrects what the sensor sees; a `promotion` is a model of what a wider scope draws when the sensor sees so
    much: it has a name, and is used only on request.
    """

    kind: Literal["gain", "promotion"]
    name: Name | None = None
    board: str
    sensor: str
    scope: Scope
    gain: float
    offset_w: float
    gain_u_ratio: float | None
    offset_u_w: float
    residual_w: float
    lowest_w: float
    highest_w: float
    steps: int
    reference: str
    excludes: tuple[str, ...] = ()
    made_at: str


def calibration_path(board: str, sensor: str, name: str | None) -> Path:
    """Return where the calibration of this sensor on this board lies, or the promotion of that name."""
    return home() / CALIBRATIONS_FOLDER / f"{name or 'gain'}-{_key(board, sensor, name or '')}.json"


def save_calibration(calibration: SensorCalibration) -> Path:
    """Write the calibration in place of an earlier one and return its file; raises ConfigError if it cannot be written."""
    return durable_file.write_struct(calibration_path(calibration.board, calibration.sensor, calibration.name), calibration)


def find_calibration(board: str | None, description: Description, name: str | None = None) -> SensorCalibration | None:
    """Return the calibration of this sensor on this board (or the promotion of that name), None where there is none.

    Raises:
        ConfigError: the file is damaged, or is not of this board and sensor.
    """
    if board is None:
        return None
    path = calibration_path(board, description.id, name)
    calibration = durable_file.read_struct(path, SensorCalibration, "calibration", "delete it and calibrate again")
    if calibration is None:
        return None
    if (calibration.board, calibration.sensor, calibration.name) != (board, description.id, name):
        other = f"of sensor {calibration.sensor!r} on board {calibration.board!r}"
        raise ConfigError(f"calibration {str(path)!r} is {other}: it does not apply here: delete it")
    if not all(map(math.isfinite, (calibration.gain, calibration.offset_w, calibration.offset_u_w))):
        raise ConfigError(f"calibration {str(path)!r} holds a number that is not finite: delete it and calibrate again")
    return calibration


class StoredSensor(PowerSensor):
    """The base of the sensors that describe another one by a file, and read it."""

    def __init__(self, sensor: PowerSensor) -> None:
        self._sensor = sensor

    def read(self) -> Reading:
        """Return the newest reading."""
        return self._sensor.read()

    def close(self) -> None:
        """Close the sensor."""
        self._sensor.close()


class CalibratedSensor(StoredSensor):
    """Reads a sensor and gives what the reference instrument would have shown; the rails stay as the sensor gave them."""

    def __init__(self, sensor: PowerSensor, calibration: SensorCalibration) -> None:
        super().__init__(sensor)
        self._calibration = calibration
        self._first_ns: int | None = None

    def describe(self) -> Description:
        """Return the sensor's description with the gain's uncertainty known, or the scope that a promotion models."""
        description, by = self._sensor.describe(), self._calibration
        beyond = BEYOND_RATIO * (by.highest_w - by.lowest_w)
        described = dataclasses.replace(
            description,
            gain_u_ratio=by.gain_u_ratio,
            offset_u_w=by.offset_u_w,
            resolution_w=None if description.resolution_w is None else description.resolution_w * by.gain,
            resolution_mj=None if description.resolution_mj is None else description.resolution_mj * by.gain,
            calibrated_w=(by.lowest_w, by.highest_w),
            valid_w=(by.lowest_w - beyond, by.highest_w + beyond),
        )
        if by.kind == "gain":
            return described
        model = f"{by.scope} is modelled from {description.scope} by {by.name!r} ({by.steps} load steps against {by.reference})"
        return dataclasses.replace(
            described,
            id=f"{description.id}+{by.name}",
            scope=by.scope,
            excludes=by.excludes,
            warnings=(*description.warnings, model),
            is_modelled=True,
        )

    def read(self) -> Reading:
        """Return the corrected reading; of a counter the offset counts from its first reading on."""
        reading, by = self._sensor.read(), self._calibration
        # A counter may show its power too.
        power_w = None if reading.power_w is None else by.offset_w + by.gain * reading.power_w
        if reading.energy_mj is None:
            return dataclasses.replace(reading, power_w=power_w)
        self._first_ns = reading.taken_ns if self._first_ns is None else self._first_ns
        offset_mj = by.offset_w * (reading.taken_ns - self._first_ns) / NS_PER_MS
        return dataclasses.replace(reading, power_w=power_w, energy_mj=offset_mj + by.gain * reading.energy_mj)


SELF_TESTS_FOLDER = "self-tests"
# What a self-test measures of how readings follow the power.
AVERAGING = ("window_s", "lag_s", "update_interval_s", "seen_ratio")


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
    return home() / SELF_TESTS_FOLDER / f"{_key(board, sensor)}.json"


def _key(*words: str) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]


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


class CheckedSensor(StoredSensor):
    """Reads a sensor, and describes what its driver leaves open as its self-test showed it."""

    def __init__(self, sensor: PowerSensor, test: SelfTest) -> None:
        super().__init__(sensor)
        self._test = test

    def describe(self) -> Description:
        """Return the sensor's description, completed; contradictions are among its warnings."""
        description, test = self._sensor.describe(), self._test
        described = description.averaging or Averaging()
        unstated = [name for name in AVERAGING if getattr(described, name) is None and getattr(test, name).value is not None]
        averaging = msgspec.structs.replace(
            described,
            **{name: getattr(test, name).value for name in unstated},
            sources=described.sources | dict.fromkeys(unstated, "self-test"),
        )
        resolution = test.resolution.value
        is_counter = description.kind == "energy"
        return dataclasses.replace(
            description,
            averaging=averaging if unstated else description.averaging,
            resolution_w=resolution if description.resolution_w is None and not is_counter else description.resolution_w,
            resolution_mj=resolution if description.resolution_mj is None and is_counter else description.resolution_mj,
            warnings=(*description.warnings, *test.findings, *contradictions(test, description)),
            self_tested_at=test.made_at,
        )
