"""The calibration of a sensor on one board: its JSON file, and the sensor whose readings it corrects."""

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
from edgemeter.agent.contract.record_figures import Scope
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


def calibration_path(board: str, sensor: str, name: str | None = None, folder: Path | None = None) -> Path:
    """Return where the calibration of this sensor on this board lies, or the promotion of that name."""
    key = hashlib.sha256(f"{board} {sensor} {name or ''}".encode()).hexdigest()[:12]
    return (folder or home()) / CALIBRATIONS_FOLDER / f"{name or 'gain'}-{key}.json"


def save_calibration(calibration: SensorCalibration, folder: Path | None = None) -> Path:
    """Write the calibration in place of an earlier one and return its file.

    Raises:
        ConfigError: it cannot be written.
    """
    return durable_file.write_struct(calibration_path(calibration.board, calibration.sensor, calibration.name, folder), calibration)


def find_calibration(
    board: str | None, description: Description, name: str | None = None, folder: Path | None = None
) -> SensorCalibration | None:
    """Return the calibration of this sensor on this board (or the promotion of that name), None where there is none.

    Raises:
        ConfigError: the file is damaged, or is not of this board and sensor.
    """
    if board is None:
        return None
    path = calibration_path(board, description.id, name, folder)
    calibration = durable_file.read_struct(path, SensorCalibration, "calibration", "delete it and calibrate again")
    if calibration is None:
        return None
    if (calibration.board, calibration.sensor, calibration.name) != (board, description.id, name):
        other = f"of sensor {calibration.sensor!r} on board {calibration.board!r}"
        raise ConfigError(f"calibration {str(path)!r} is {other}: it does not apply here: delete it")
    if not all(map(math.isfinite, (calibration.gain, calibration.offset_w, calibration.offset_u_w))):
        raise ConfigError(f"calibration {str(path)!r} holds a number that is not finite: delete it and calibrate again")
    return calibration


class CalibratedSensor(PowerSensor):
    """Reads a sensor and gives what the reference instrument would have shown; the rails stay as the sensor gave them."""

    def __init__(self, sensor: PowerSensor, calibration: SensorCalibration) -> None:
        self._sensor = sensor
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

    def close(self) -> None:
        """Close the sensor."""
        self._sensor.close()
