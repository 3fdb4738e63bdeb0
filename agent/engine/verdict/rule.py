"""What a rule of the verdict is: a name, what breaking it makes of a run, and a look at the facts that answers with evidence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import samples
from edgemeter.agent.engine.job import Measured
from edgemeter.agent.records import Condition, CoolDown, Energy, Environment, ObserverEffect

# `note`: worth knowing, and no reason to doubt the figures.
Effect = Literal["note", "suspect", "invalid"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules may look at."""

    measured: Measured
    conditions: Sequence[Condition]
    environment: Environment | None = None
    observer: ObserverEffect | None = None
    cool_down: CoolDown | None = None
    energies: Sequence[Energy] = ()
    power_warnings: Sequence[str] = ()

    def looks(self, *when: str) -> list[Condition]:
        """Return the looks at the machine `before`, `during` or `after` the run; with no argument all, in their order."""
        return [condition for condition in self.conditions if not when or condition.when in when]

    def latency_ms(self) -> NDArray[np.float64]:
        """Return the durations of the timed queries in their order, float64 [n]; empty where they were not kept."""
        found = next((series for series in self.measured.samples if series.name == "latency"), None)
        return np.zeros(0) if found is None else samples.unpack(found) / 1e6


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its name, what breaking it makes of a run, what it asks, and why; `evidence` returns None while it holds."""

    name: str
    state: Effect
    asks: str
    evidence: Callable[[Facts], str | None]
    why: str = ""
