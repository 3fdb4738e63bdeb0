"""Which power sensors are here, and which of them a run uses when nobody said: the one that sees the most of the machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent import power
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.power import AbsentError, Description
from edgemeter.agent.power.world import HERE, World
from edgemeter.agent.records import Scope

# From the most to the least of what a device draws.
WIDEST_FIRST: tuple[Scope, ...] = ("wall-ac", "board-input", "module", "soc-rails", "cpu-package", "gpu-board")
# It plays a recording: never taken for a sensor of this machine unless it was asked for.
NEVER_FOUND = frozenset({"replay"})
NO_SENSOR = "no power sensor on this machine"


@dataclass(frozen=True, slots=True)
class Found:
    """One known sensor: what it is where it is here, else the reason why it is not; `is_absent` unless it is here and cannot be read.

    `is_chosen_unasked` is false of one that a run uses only when it was named.
    """

    name: str
    description: Description | None
    reason: str | None
    is_absent: bool = False
    is_chosen_unasked: bool = True


def detect(settings: Mapping[str, Mapping[str, str]] | None = None, names: Sequence[str] | None = None, world: World = HERE) -> list[Found]:
    """Return every known sensor, present or not, the widest scope first; `settings` holds the configuration of each by name.

    `replay` is looked at only where it is configured or named.
    """
    configured = settings or {}
    known = [name for name in power.names() if name not in NEVER_FOUND or name in configured]
    asked = names or [*known, *(name for name in configured if name not in known)]
    found = [_look(name, configured.get(name, {}), world) for name in asked]
    return sorted(found, key=lambda one: (one.description is None, rank(one.description.scope) if one.description else 0))


def choose(found: Iterable[Found]) -> tuple[str | None, str]:
    """Return the name of the sensor with the widest scope, and why; without any, None and the reason for that.

    One that is blocked from giving an energy yields to one that is not.
    """
    known = list(found)
    here = [(one, one.description) for one in known if one.description is not None and one.is_chosen_unasked]
    if not here:
        unreadable = [f"{one.name} is here and cannot be read: {one.reason}" for one in known if one.reason and not one.is_absent]
        return None, "; ".join(unreadable) or NO_SENSOR
    best, description = min(here, key=lambda pair: (pair[1].blocked is not None, rank(pair[1].scope)))
    others = [one.name for one, other in here if one is not best and rank(other.scope) > rank(description.scope)]
    equals = [one.name for one, other in here if one is not best and other.scope == description.scope]
    reason = f"{best.name}, which sees {description.scope}"
    reason += f", more than {', '.join(others)}" if others else ""
    reason += f", before {', '.join(equals)} of the same scope" if equals else ""
    return best.name, reason


def rank(scope: Scope) -> int:
    """Return the place of a scope among all, 0 for the widest."""
    return WIDEST_FIRST.index(scope)


def _look(name: str, settings: Mapping[str, str], world: World) -> Found:
    unasked = settings.get("type", name) not in NEVER_FOUND
    try:
        sensor = power.create(name, **settings, **({} if world is HERE else {"world": world}))
    except EdgemeterError as error:
        return Found(name, None, str(error), is_chosen_unasked=unasked)
    try:
        return Found(name, sensor.describe(), None, is_chosen_unasked=unasked)
    except EdgemeterError as error:
        return Found(name, None, str(error), isinstance(error, AbsentError), unasked)
    finally:
        sensor.close()
