"""Checks that several sensors share.

They check settings, a power, an answer in JSON, and a reading that fails.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast, get_args

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.contract.record_figures import Scope

_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*", re.ASCII)


def scope_setting(sensor: str, text: str) -> Scope:
    """Return the scope of that name; raises ConfigError if there is none."""
    if text not in get_args(Scope):
        raise ConfigError(
            f"[sensors.{sensor}] scope = {text!r}: choose one of {', '.join(get_args(Scope))}"
        )
    return cast("Scope", text)


def positive_setting(sensor: str, key: str, text: str) -> float:
    """Return a number above zero; raises ConfigError for any other text."""
    with suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and value > 0:
            return value
    raise ConfigError(
        f"[sensors.{sensor}] {key} = {text!r}: give a number above 0, as in {key} = 0.1"
    )


def plausible_power_w(power_w: float, highest_w: float, origin: str) -> float:
    """Return the power, which must be one that `origin` can show.

    Raises:
        TransientError: it is larger than that, in either direction.
    """
    if abs(power_w) > highest_w:
        raise TransientError(
            f"{origin} shows {power_w:.3g} W, more than its maximum of {highest_w:g} W: the "
            "value is garbled; read it again"
        )
    return power_w


def within_range(number: float, full_scale: float, chip: str) -> float:
    """Return the value of a chip's shunt.

    Raises:
        TransientError: it is at either end of the chip's range.
    """
    if abs(number) >= full_scale:
        raise TransientError(
            f"the {chip}'s shunt is at the end of its range: the current is larger than can be "
            "measured, use a smaller shunt"
        )
    return number


@contextmanager
def as_unavailable(*kinds: type[EdgemeterError]) -> Iterator[None]:
    """Turn a TransientError inside, or one of `kinds`, into an UnavailableError.

    The sensor is present then, but cannot be described.
    """
    errors: tuple[type[EdgemeterError], ...] = (TransientError, *kinds)
    try:
        yield
    except errors as error:
        raise UnavailableError(str(error)) from error


def json_object(content: bytes, who: str) -> dict[str, Any]:
    """Return the JSON object of an answer; raises TransientError if it is cut or garbled."""
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
        if not isinstance(document, dict):
            # It is a garbled answer like any other.
            raise ValueError("no JSON object")  # noqa: TRY004, TRY301
    except (ValueError, RecursionError) as error:
        raise TransientError(
            f"{who} gave an answer that is cut or garbled ({error}): "
            f"{content[:60].decode(errors='replace')!r}: read it again"
        ) from error
    return document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def json_number(value: Any) -> float | None:
    """Return a finite number, which some firmware writes as a string; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # float() accepts more than any meter writes: 1_000, infinity, digits of other scripts.
    if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None
