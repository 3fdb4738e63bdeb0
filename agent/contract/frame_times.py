"""When the frames at a steady rate that were answered arrived, were begun and answered: which waited for others, which for Edgemeter."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series

Times = NDArray[np.int64]
Choice = NDArray[np.bool_]
_SERIES = frozenset({"arrival", "query_start", "latency"})


def frame_numbers(arrivals_ns: Times, rate_per_s: float) -> Times:
    """Return the numbers of the frames that arrive at these moments after the beginning, int64 [n]."""
    numbers: Times = np.rint(arrivals_ns * (rate_per_s / 1e9)).astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """Answered frames in their order; arrival and begin of the call in ns after the beginning, int64 [n] each."""

    rate_per_s: float
    arrivals_ns: Times
    starts_ns: Times
    latency_ns: Times

    @classmethod
    def of_series(cls, series: Iterable[Series], rate_per_s: float) -> "FrameTimes | None":
        """Return those of a run's raw samples, None if they are not there; raises ConfigError if they are damaged."""
        raw = {part.name: samples.unpack(part) for part in series if part.name in _SERIES}
        if raw.keys() != _SERIES or len({values.size for values in raw.values()}) != 1:
            return None
        return cls(rate_per_s, raw["arrival"], raw["query_start"], raw["latency"])

    @property
    def numbers(self) -> Times:
        """Return the numbers of the frames, from 0."""
        return frame_numbers(self.arrivals_ns, self.rate_per_s)

    @property
    def service_ns(self) -> Times:
        """Return how long the calls took."""
        return self.arrivals_ns + self.latency_ns - self.starts_ns

    @property
    def before_ns(self) -> Times:
        """Return when the answer before each frame's came; of the first one the beginning."""
        return np.append(0, (self.arrivals_ns + self.latency_ns)[:-1])

    @property
    def have_waited(self) -> Choice:
        """Return which frames the model was not free for: the one before was not answered yet, or failed, which only a gap shows."""
        is_behind: Choice = (self.arrivals_ns < self.before_ns) | (np.diff(self.numbers, prepend=-1) > 1)
        return is_behind

    @property
    def delays_ns(self) -> Times:
        """Return how late Edgemeter itself woke up for each frame; 0 of those that waited."""
        return np.where(self.have_waited, 0, self.starts_ns - self.arrivals_ns)

    def late(self, deadline_ms: float) -> tuple[Choice, Choice, Choice]:
        """Return which frames were answered late, which took the model itself longer, and which only Edgemeter's waking up made late."""
        are_late: Choice = self.latency_ns > deadline_ms * 1e6
        are_too_slow: Choice = self.service_ns > deadline_ms * 1e6
        return are_late, are_too_slow, are_late & ~are_too_slow & ~self.have_waited
