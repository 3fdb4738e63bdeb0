"""The settings that several sensors share, from the strings of the configuration."""

import math
from typing import get_args

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Scope


def scope(sensor: str, said: str) -> Scope:
    """Return the scope of that name.

    Raises:
        ConfigError: there is none.
    """
    for known in get_args(Scope):
        if said == known:
            return known  # type: ignore[no-any-return]
    message = f"[sensors.{sensor}] scope = {said!r}: choose one of {', '.join(get_args(Scope))}"
    raise ConfigError(message)


def positive(sensor: str, key: str, said: str) -> float:
    """Return a number above zero.

    Raises:
        ConfigError: it is none.
    """
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value > 0:
        return value
    message = f'[sensors.{sensor}] {key} = {said!r}: give a number above 0, as in {key} = "0.1"'
    raise ConfigError(message)


def direction(sensor: str, said: str) -> int:
    """Return 1 for `forward`, -1 for `reverse`.

    Raises:
        ConfigError: it is neither.
    """
    if said in {"forward", "reverse"}:
        return 1 if said == "forward" else -1
    message = f"[sensors.{sensor}] direction = {said!r}: choose forward or reverse"
    raise ConfigError(message)
