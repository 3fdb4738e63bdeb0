"""The points that a record comes to: its own, and, for whoever wants them in InfluxDB too, those of its raw samples.

`latency_histogram` is one point a record: how many timed queries took how long, a field a bucket, named for its upper bound
(`to_12500000_ns`: above the next smaller bound, up to and with 12.5 ms); the bounds are ten a decade, 1 us to 1,000 s, and `above_ns`
holds the rest. `power_trace` is one point a reading: `power_w`, or `energy_mj` of a sensor that counts, with the sensor and the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgemeter.agent import records, samples
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord, Series
from edgemeter.collector.keep import line_protocol, point_figures
from edgemeter.collector.keep.influx_config import Extent, Extra

# R10 of ISO 3: ten bounds a decade.
_STEPS = (1000, 1250, 1600, 2000, 2500, 3150, 4000, 5000, 6300, 8000)
BOUNDS_NS = np.array([step * 10**decade for decade in range(9) for step in _STEPS] + [10**12], np.int64)


@dataclass(frozen=True, slots=True)
class Points:
    """Which points a record comes to."""

    extent: Extent = "all"
    also: frozenset[Extra] = frozenset()

    def lines(self, payload: bytes, *, is_checked: bool = True) -> list[str]:
        """Return the points of the record in `payload` (JSON), its own first; damaged samples come to none.

        Raises:
            ConfigError: it is no record; where `is_checked` is true somebody has looked, and it is not looked at again.
        """
        if self.extent == "figures" and not self.also and is_checked:
            return [line_protocol.line(point_figures.read(payload), "figures")]
        record = records.decode(payload)
        found = [line_protocol.line(record, self.extent)]
        if self.also:
            series = {one.name: one for one in record.samples}
            if "latency_histogram" in self.also:
                found += _histogram(record, series)
            if "power_trace" in self.also:
                found += _power(record, series)
        return found


def _histogram(record: RunRecord, series: dict[str, Series]) -> Iterator[str]:
    latency = series.get("latency")
    if latency is None or latency.unit != "ns":
        return
    try:
        taken = samples.unpack(latency)
    except ConfigError:
        return
    if not taken.size:
        return
    counts = np.bincount(np.searchsorted(BOUNDS_NS, taken), minlength=len(BOUNDS_NS) + 1).tolist()
    names = [*(f"to_{bound}_ns" for bound in BOUNDS_NS.tolist()), "above_ns"]
    fields = [f"{name}={count}i" for name, count in zip(names, counts, strict=True) if count]
    identity = _identity(record)
    yield f"latency_histogram{line_protocol.tags(record)} {','.join(fields)},{identity} {line_protocol.point_ns(record)}"


def _power(record: RunRecord, series: dict[str, Series]) -> Iterator[str]:
    # Readings of different sensors at one nanosecond must not be one point: the sensor's place takes the last digits.
    tags, identity = line_protocol.tags(record), _identity(record)
    # Readings count from the first timed query, on the clock that `monotonic_ns` was read from when the run started.
    first_ns = line_protocol.start_ns(record) + (record.windows.timed_start_ns - record.monotonic_ns if record.windows else 0)
    for place, trace in enumerate(record.power_traces):
        kind, value_name = ("energy", "energy_mj") if trace.kind == "energy" else ("power", "power_w")
        values, times = series.get(f"{kind}.{trace.name}"), series.get(f"power_at.{trace.name}")
        if values is None or times is None:
            continue
        try:
            read, taken_ns = samples.unpack(values).astype(np.float64), samples.unpack(times)
        except ConfigError:
            continue
        if len(read) != len(taken_ns):
            continue
        head = f"power_trace{tags} sensor={line_protocol.quoted(trace.name)},{identity},{value_name}="
        for value, at_ns in zip(read.tolist(), taken_ns.tolist(), strict=True):
            if np.isfinite(value):
                yield f"{head}{value!r} {(first_ns + at_ns) // 1000 * 1000 + place}"


def _identity(record: RunRecord) -> str:
    return f"run_id={line_protocol.quoted(record.id)}"
