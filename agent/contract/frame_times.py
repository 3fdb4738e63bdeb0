"""The arrivals of frames at a steady rate, and the starts and ends of their calls.

A sensor with its own clock sees the same part of each frame, if its period is that of the frames,
or half or twice it. So frames come a little slower than the rate for 15 s, and a little faster for
the next 15 s. Each half of this shift moves them by one whole period against such a clock, which
then sees all parts equally often. After 30 s as many frames have come as at the exact rate.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series

Times = NDArray[np.int64]
Choice = NDArray[np.bool_]
_SERIES = frozenset({"arrival", "query_start", "latency"})


# With a sensor's clock of 1/2, 1 or 2 frames, the mean over 30 to 60 s of loads of 2 and 6 W is off
# by at most 1%; by 9% if the clocks differ by 100 ppm or 1%, and by 3% if they differ by 3%.
# Without the shift it is off by 150%, 150%, 5% and 2%. A shift of 20 s is off by up to 23% at 1%,
# one of 60 s by 37% at 100 ppm.
SHIFT_NS = 30e9
# Frames slower than 10 a second move by 100 ms, in which a fast sensor has several readings.
MOST_SHIFTED_NS = 100e6


def frame_arrivals_ns(numbers: Times, rate_per_s: float) -> Times:
    """Return the arrivals of frames, numbered from 0, from the beginning, int64 [n]."""
    slower, faster = _paces(rate_per_s)
    shifts, within_ns = np.divmod(numbers * 1e9 / rate_per_s, SHIFT_NS)
    shifted_ns = np.minimum(within_ns * slower, SHIFT_NS - (SHIFT_NS - within_ns) * faster)
    arrivals_ns: Times = np.rint(shifts * SHIFT_NS + shifted_ns).astype(np.int64)
    return arrivals_ns


def frame_numbers(arrivals_ns: Times, rate_per_s: float) -> Times:
    """Return the numbers of the frames with these arrivals from the beginning, int64 [n]."""
    slower, faster = _paces(rate_per_s)
    shifts, within_ns = np.divmod(arrivals_ns, SHIFT_NS)
    exact_ns = np.maximum(within_ns / slower, SHIFT_NS - (SHIFT_NS - within_ns) / faster)
    numbers: Times = np.rint((shifts * SHIFT_NS + exact_ns) * (rate_per_s / 1e9)).astype(np.int64)
    return numbers


def _paces(rate_per_s: float) -> tuple[float, float]:
    """Return the time between frames in the first and the second half of the shift.

    Both are ratios of the exact time.
    """
    offset = 2 * min(1e9 / rate_per_s, MOST_SHIFTED_NS) / SHIFT_NS
    return 1 + offset, 1 - offset


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """The answered frames in their order.

    Arrivals and starts of the calls are in ns from the beginning, int64 [n] each.
    """

    rate_per_s: float
    arrivals_ns: Times
    starts_ns: Times
    latency_ns: Times

    @classmethod
    def of_series(cls, series: Iterable[Series], rate_per_s: float) -> "FrameTimes | None":
        """Return the times from a run's series, None without them.

        Raises:
            ConfigError: they are damaged.
        """
        raw = {part.name: samples.unpack(part) for part in series if part.name in _SERIES}
        if raw.keys() != _SERIES or len({values.size for values in raw.values()}) != 1:
            return None
        return cls(rate_per_s, raw["arrival"], raw["query_start"], raw["latency"])

    @property
    def numbers(self) -> Times:
        """The numbers of the frames, from 0."""
        return frame_numbers(self.arrivals_ns, self.rate_per_s)

    @property
    def service_ns(self) -> Times:
        """The durations of the calls."""
        return self.arrivals_ns + self.latency_ns - self.starts_ns

    @property
    def before_ns(self) -> Times:
        """The end of the previous call for each frame; the beginning for the first."""
        return np.append(0, (self.arrivals_ns + self.latency_ns)[:-1])

    @property
    def have_waited(self) -> Choice:
        """Whether the model was busy when each frame arrived.

        It was busy with the frame before, or with a failed frame, which leaves a gap.
        """
        is_behind: Choice = (self.arrivals_ns < self.before_ns) | (
            np.diff(self.numbers, prepend=-1) > 1
        )
        return is_behind

    @property
    def delays_ns(self) -> Times:
        """The delay of each frame by a late wake-up of Edgemeter.

        0 for frames that waited for the model.
        """
        return np.where(self.have_waited, 0, self.starts_ns - self.arrivals_ns)

    def late(self, deadline_ms: float) -> tuple[Choice, Choice, Choice]:
        """Return which frames were late, and why, as three choices.

        They are the late frames; those of them for which the model took too long; and those that
        only Edgemeter's wake-up made late.
        """
        are_late: Choice = self.latency_ns > deadline_ms * 1e6
        are_too_slow: Choice = self.service_ns > deadline_ms * 1e6
        return are_late, are_too_slow, are_late & ~are_too_slow & ~self.have_waited
