"""Checks and averages that several sensors share: of settings, of a power, of a reading that fails, of readings."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.contract.record_figures import Scope


def scope_setting(sensor: str, text: str) -> Scope:
    """Return the scope of that name; raises ConfigError if there is none."""
    if text not in get_args(Scope):
        raise ConfigError(f"[sensors.{sensor}] scope = {text!r}: choose one of {', '.join(get_args(Scope))}")
    return cast("Scope", text)


def positive_setting(sensor: str, key: str, text: str) -> float:
    """Return a number above zero; raises ConfigError if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value > 0:
        return value
    raise ConfigError(f"[sensors.{sensor}] {key} = {text!r}: give a number above 0, as in {key} = 0.1")


def plausible_power_w(power_w: float, highest_w: float, origin: str) -> float:
    """Return the power; raises TransientError if it is more than `origin` can show, in either direction."""
    if abs(power_w) > highest_w:
        raise TransientError(
            f"{origin} shows {power_w:.3g} W, more than its maximum of {highest_w:g} W: the value is garbled; read it again"
        )
    return power_w


def within_range(number: float, full_scale: float, chip: str) -> float:
    """Return what the shunt of a chip shows; raises TransientError if it is the last value that the chip can show, in either direction."""
    if abs(number) >= full_scale:
        raise TransientError(
            f"the {chip}'s shunt is at the end of its range: the current is larger than can be measured, use a smaller shunt"
        )
    return number


@contextmanager
def as_unavailable(*kinds: type[EdgemeterError]) -> Iterator[None]:
    """Turn a TransientError inside, or one of `kinds`, into an UnavailableError: the sensor is here, and cannot be described."""
    errors: tuple[type[EdgemeterError], ...] = (TransientError, *kinds)
    try:
        yield
    except errors as error:
        raise UnavailableError(str(error)) from error


AveragingSource = Literal["published", "driver", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """How a sensor's readings follow the power; what is unknown is None.

    A reading is the mean of `window_s` (0: it is of a moment), and lies `lag_s` behind the power beyond half of that. From one value of the
    sensor to the next `update_interval_s` pass by its own clock, and it looks at the power for `seen_ratio` of the time. `sources` holds
    where each of these is from: published by the maker or in a paper, read from the driver, estimated.
    """

    window_s: float | None = None
    lag_s: float | None = None
    update_interval_s: float | None = None
    seen_ratio: float | None = None
    sources: Mapping[str, AveragingSource] = field(default_factory=dict)


AVERAGING = ("window_s", "lag_s", "update_interval_s", "seen_ratio")


def averaging_by(source: AveragingSource, **parts: float) -> Averaging | None:
    """Return the averaging whose `parts` all come from one source; None where none is above 0, which stands for unknown."""
    known_parts = {name: value for name, value in parts.items() if value > 0}
    return Averaging(**known_parts, sources=dict.fromkeys(known_parts, source)) if known_parts else None
