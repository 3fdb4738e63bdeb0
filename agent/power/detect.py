"""Which power sensors are here, and which of them a run uses when nobody said: the one that sees the most of the machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from edgemeter.agent import power
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.power import Description
from edgemeter.agent.records import Scope

# From the most to the least of what a device draws.
WIDEST_FIRST: tuple[Scope, ...] = ("wall-ac", "board-input", "module", "soc-rails", "cpu-package", "gpu-board")
# It plays a recording: never taken for a sensor of this machine unless it was asked for.
NEVER_FOUND = frozenset({"replay"})
NO_SENSOR = "no power sensor on this machine"


@dataclass(frozen=True, slots=True)
class Found:
    """One known sensor: what it is where it is here, else the reason why it is not."""

    name: str
    description: Description | None
    reason: str | None


def detect(settings: Mapping[str, Mapping[str, str]] | None = None, names: Sequence[str] | None = None) -> list[Found]:
    """Return every known sensor, present or not, the widest scope first; `settings` holds the configuration of each by name.

    `replay` is looked at only where it is configured or named.
    """
    configured = settings or {}
    asked = names or [name for name in power.names() if name not in NEVER_FOUND or name in configured]
    found = [_look(name, configured.get(name, {})) for name in asked]
    return sorted(found, key=lambda one: (one.description is None, rank(one.description.scope) if one.description else 0))


def choose(found: Iterable[Found]) -> tuple[str | None, str]:
    """Return the name of the sensor with the widest scope, and why; without any, None and the reason for that."""
    here = [one for one in found if one.description is not None and one.name not in NEVER_FOUND]
    if not here:
        return None, NO_SENSOR
    best = min(here, key=lambda one: rank(one.description.scope) if one.description else len(get_args(Scope)))
    scope = best.description.scope if best.description else ""
    others = ", ".join(one.name for one in here if one is not best)
    return best.name, f"{best.name}, which sees {scope}" + (f", more than {others}" if others else "")


def rank(scope: Scope) -> int:
    """Return the place of a scope among all, 0 for the widest."""
    return WIDEST_FIRST.index(scope)


def _look(name: str, settings: Mapping[str, str]) -> Found:
    try:
        sensor = power.create(name, **settings)
    except EdgemeterError as error:
        return Found(name, None, str(error))
    try:
        return Found(name, sensor.describe(), None)
    except EdgemeterError as error:
        return Found(name, None, str(error))
    finally:
        sensor.close()
