"""Replays a recorded power trace, for demonstrations and tests.

Protocol: `path` is CSV with the header `t_s,power_w`, or JSON, in which only `t_s` and `power_w`
are required:

    {"id": "ina226-pi4", "scope": "board-input", "excludes": ["power-supply loss"],
     "period_ms": 100, "resolution_w": 0.025, "gain_u_ratio": 0.02,
     "t_s": [0.0, 0.1, 0.2], "power_w": [3.1, 3.2, 3.0]}

    [sensors.replay]
    path = "trace.json"
    # scope = "board-input"         # default: the recording's

It starts with the first reading and begins again at its end; between its points the power is
interpolated. Tested with: recordings of this form.
"""

import csv
import io
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, cast, get_args

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.power import Description, Reading


class ReplayTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file: power in W at seconds since any start, increasing."""

    t_s: tuple[float, ...]
    power_w: tuple[float, ...]
    id: str | None = None
    scope: Scope | None = None
    excludes: tuple[str, ...] = ()
    period_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None
    resolution_w: Annotated[float, msgspec.Meta(ge=0)] | None = None
    gain_u_ratio: Annotated[float, msgspec.Meta(ge=0)] | None = None


class ReplaySensor:
    """Plays one recording in a loop."""

    def __init__(
        self, path: str = "", scope: str | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._path = path
        self._scope = scope
        self._clock = clock
        self._recording: ReplayTrace | None = None
        self._started_ns: int | None = None

    def describe(self) -> Description:
        recording = self._read()
        return Description(
            id=f"replay:{recording.id or Path(self._path).name}",
            scope=self._known_scope(recording),
            excludes=recording.excludes,
            kind="power",
            period_ms=recording.period_ms or _spacing_ms(recording.t_s),
            resolution_w=recording.resolution_w,
            gain_u_ratio=recording.gain_u_ratio,
        )

    def read(self) -> Reading:
        recording = self._read()
        now = self._clock()
        self._started_ns = now if self._started_ns is None else self._started_ns
        length_s = recording.t_s[-1] - recording.t_s[0]
        moment_s = recording.t_s[0] + (now - self._started_ns) / NS_PER_S % length_s
        index = min(max(bisect_right(recording.t_s, moment_s), 1), len(recording.t_s) - 1)
        t0, t1 = recording.t_s[index - 1], recording.t_s[index]
        p0, p1 = recording.power_w[index - 1], recording.power_w[index]
        return Reading(taken_ns=now, power_w=p0 + (p1 - p0) * (moment_s - t0) / (t1 - t0))

    def close(self) -> None:
        self._recording = None

    def _read(self) -> ReplayTrace:
        if self._recording is None:
            self._recording = _load(self._path)
        return self._recording

    def _known_scope(self, recording: ReplayTrace) -> Scope:
        scope = self._scope or recording.scope
        if scope in get_args(Scope):
            return cast("Scope", scope)
        lack = "states no scope" if scope is None else f"has the unknown scope {scope!r}"
        raise ConfigError(
            f'the power recording {self._path!r} {lack}: set scope = "board-input" in '
            f"[sensors.replay], or what its sensor saw ({', '.join(get_args(Scope))})"
        )


def _spacing_ms(t_s: Sequence[float]) -> float:
    # It takes long to import, and most recordings state their period.
    import statistics  # noqa: PLC0415

    return statistics.median(later - earlier for earlier, later in pairwise(t_s)) * 1000


def _load(path: str) -> ReplayTrace:
    content = _content(path)
    try:
        if content.lstrip()[:1] == b"{":
            recording = decode_json(content, ReplayTrace)
        else:
            rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
            recording = ReplayTrace(
                t_s=tuple(float(row["t_s"]) for row in rows),
                power_w=tuple(float(row["power_w"]) for row in rows),
            )
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise ConfigError(
            f"{path!r} is not a power recording ({error}): it needs JSON with t_s and power_w, or "
            "CSV with the header t_s,power_w"
        ) from error
    is_whole = len(recording.t_s) == len(recording.power_w) >= 2 and all(
        map(math.isfinite, (*recording.power_w, *recording.t_s))
    )
    if not is_whole or any(not b - a > 0 for a, b in pairwise(recording.t_s)):
        raise ConfigError(
            f"power recording {path!r} needs two or more points, finite, with increasing t_s: "
            "correct the file"
        )
    return recording


def _content(path: str) -> bytes:
    if not path:
        raise ConfigError(
            'the replay sensor plays a recording: set path = "trace.json" in [sensors.replay]'
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the power recording {path!r}: {error.strerror}: correct the path"
        ) from error
