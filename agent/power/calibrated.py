"""A sensor whose readings are corrected by its calibration."""

import dataclasses

from edgemeter.agent.power import Description, PowerSensor, Reading
from edgemeter.agent.power.calibration_file import Calibration

NS_PER_MS = 1e6
# How far beyond the calibrated power the line is still believed, as a share of the calibrated span.
BEYOND_RATIO = 0.25


class Calibrated:
    """Reads a sensor and gives what the reference instrument would have shown; the rails stay as the sensor gave them."""

    def __init__(self, sensor: PowerSensor, calibration: Calibration) -> None:
        self._sensor = sensor
        self._calibration = calibration
        self._first_ns: int | None = None

    def describe(self) -> Description:
        """Return the sensor's description with the gain's uncertainty known, or the scope that a promotion models."""
        found, by = self._sensor.describe(), self._calibration
        beyond = BEYOND_RATIO * (by.highest_w - by.lowest_w)
        described = dataclasses.replace(
            found,
            gain_u_ratio=by.gain_u_ratio,
            offset_u_w=by.offset_u_w,
            resolution_w=None if found.resolution_w is None else found.resolution_w * by.gain,
            resolution_mj=None if found.resolution_mj is None else found.resolution_mj * by.gain,
            valid_w=(by.lowest_w - beyond, by.highest_w + beyond),
        )
        if by.kind == "gain":
            return described
        told = f"{by.scope} is modelled from {found.scope} by {by.name!r} ({by.steps} load steps against {by.reference})"
        return dataclasses.replace(
            described, id=f"{found.id}+{by.name}", scope=by.scope, excludes=by.excludes, warnings=(*found.warnings, told), is_modelled=True
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

    @staticmethod
    def recognises(content: bytes) -> bool:  # noqa: ARG004 - a recording is not calibrated
        """Return False."""
        return False
