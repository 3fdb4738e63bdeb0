"""Windows of a stream in which something is to be detected, and how detections are counted against them.

The rule is that of MLPerf Tiny v1.3's runner (mlcommons/tiny, `benchmark/runner/streaming_ww_utils.py`). The script that its model was
trained beside counts otherwise: a window ends half a second after the word there, and its detections are not taken away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.statistics import exact_interval, poisson_interval
from edgemeter.agent.contract.record_accuracy import StreamDetections
from edgemeter.agent.datasets.items import is_number, read_text

# Begin and end in s.
Window = tuple[float, float]
# What follows a window counts as in it for so long, and further false detections as the same.
GRACE_S = DEBOUNCE_S = 1.0
# More moments than this are of no use to anybody, and would fill the record.
MOST_MOMENTS = 10_000
_FORM = "give JSON [[start, stop], ...] or lines `start,stop`, in seconds from the beginning of the stream"


class _NamedWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class CountedDetections:
    """How many windows were found, and the moments of the detections that are false."""

    found: int
    false_s: tuple[float, ...]


def count_detections(detected_s: Sequence[float], windows: Sequence[Window]) -> CountedDetections:
    """Return what the detections are worth: one in a window or in the second after it finds it, and all of these belong to it.

    Windows take them in their order, each detection once. Of those that are left each is false, but for those in the second after one.
    """
    left_s, found_windows = np.sort(np.asarray(detected_s, np.float64)), 0
    for start_s, stop_s in windows:
        inside = (left_s >= start_s) & (left_s <= stop_s + GRACE_S)
        found_windows += bool(inside.any())
        left_s = left_s[~inside]
    false_s: list[float] = []
    for moment_s in left_s.tolist():
        # In whole microseconds, so that a second is one whatever its last digit.
        since_us = round(moment_s * 1e6) - round(false_s[-1] * 1e6) if false_s else 0
        if not 0 < since_us <= DEBOUNCE_S * 1e6:
            false_s.append(moment_s)
    return CountedDetections(found_windows, tuple(false_s))


def summarise_detections(
    detected_s: Sequence[float], windows: Sequence[Window], stream_s: float, label: str, threshold: float
) -> StreamDetections:
    """Return what the detections of a stream of this length come to, with exact bounds of both errors."""
    counted, count, hours = count_detections(detected_s, windows), len(windows), stream_s / 3600
    missed, false = count - counted.found, len(counted.false_s)
    missed_low, missed_high = exact_interval(missed, count) if count else (None, None)
    false_low, false_high = poisson_interval(false)
    return StreamDetections(
        label=label,
        threshold=threshold,
        stream_s=stream_s,
        windows=count,
        found=counted.found,
        missed=missed,
        false=false,
        missed_ratio=missed / count if count else None,
        missed_low_ratio=missed_low,
        missed_high_ratio=missed_high,
        false_per_h=false / hours,
        false_per_h_low=false_low / hours,
        false_per_h_high=false_high / hours,
        detected_at_s=tuple(detected_s[:MOST_MOMENTS]),
        windows_s=tuple(windows),
        grace_s=GRACE_S,
        debounce_s=DEBOUNCE_S,
    )


def counted_again(detections: StreamDetections) -> StreamDetections:
    """Return the same of the moments and windows that it states; as it is where not all moments are there."""
    if len(detections.detected_at_s) >= MOST_MOMENTS:
        return detections
    facts = (detections.stream_s, detections.label, detections.threshold)
    recounted = summarise_detections(detections.detected_at_s, detections.windows_s, *facts)
    return msgspec.structs.replace(recounted, most_missed=detections.most_missed, most_false=detections.most_false)


def read_windows(path: Path, length_s: float) -> tuple[Window, ...]:
    """Return the windows in a file, in its order: JSON of pairs or of objects with start_s and stop_s, or lines of pairs.

    Raises:
        ConfigError: it cannot be read, is in another form, or names a moment that a stream of `length_s` does not have.
    """
    text = read_text(path, "the windows")
    windows = _of_json(text, path) if text.lstrip().startswith(("[", "{")) else _of_lines(text, path)
    for number, (start_s, stop_s) in enumerate(windows, 1):
        if start_s > stop_s:
            raise ConfigError(f"the windows {str(path)!r}: number {number} is {start_s:g} to {stop_s:g} s: the stop comes after the start")
        if not 0 <= start_s <= min(stop_s, length_s):
            raise ConfigError(
                f"the windows {str(path)!r}: number {number} is {start_s:g} to {stop_s:g} s, and the stream has {length_s:g} s: "
                "give those of this stream"
            )
    return windows


def _of_json(text: str, path: Path) -> tuple[Window, ...]:
    try:
        windows = decode_json(text, list[tuple[float, float] | _NamedWindow])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the windows {str(path)!r}: {error}: {_FORM}") from error
    return tuple((window.start_s, window.stop_s) if isinstance(window, _NamedWindow) else window for window in windows)


def _of_lines(text: str, path: Path) -> tuple[Window, ...]:
    windows: list[Window] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.replace("\t", ",").split(",")]
        are_numbers = len(cells) == 2 and all(map(is_number, cells))
        if are_numbers:
            windows.append((float(cells[0]), float(cells[1])))
        # The first line may be a heading.
        elif line.strip() and not (number == 1 and not any(map(is_number, cells))):
            raise ConfigError(f"the windows {str(path)!r}: line {number} is {line[:60]!r}: {_FORM}")
    return tuple(windows)
