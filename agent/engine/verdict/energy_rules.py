"""Rules on the energies of a run: several sensors must be able to be right together, and a sensor that doubts itself is heard."""

import math
from itertools import combinations

from edgemeter.agent.engine.verdict.rule import Facts, Rule
from edgemeter.agent.records import Energy, Scope

# What each scope lies inside of: all that a narrower one sees, a wider one must see too.
INSIDE: dict[Scope, tuple[Scope, ...]] = {
    "wall-ac": (),
    "board-input": ("wall-ac",),
    "module": ("board-input", "wall-ac"),
    "soc-rails": ("module", "board-input", "wall-ac"),
    "cpu-package": ("soc-rails", "module", "board-input", "wall-ac"),
    "gpu-board": ("board-input", "wall-ac"),
}
# Where a sensor's gain is not known: what the parts of a board may exceed its total by before that speaks of a fault.
UNKNOWN_GAIN_RATIO = 0.10


def _implausible(facts: Facts) -> str | None:
    said = [evidence for one, other in combinations(facts.energies, 2) if (evidence := _contradiction(one, other))]
    return "; ".join(said) or None


def _contradiction(one: Energy, other: Energy) -> str | None:
    """Return what two energies of a run contradict each other in; None where both can be right."""
    narrow, wide = (one, other) if other.scope in INSIDE[one.scope] else (other, one)
    ratio = narrow.mean_power_w / wide.mean_power_w if wide.mean_power_w else math.inf
    figures = f"{narrow.mean_power_w:.4g} W ({narrow.sensor}, {narrow.scope}) and {wide.mean_power_w:.4g} W ({wide.sensor}, {wide.scope})"
    beyond = narrow.mean_power_w - wide.mean_power_w
    if wide.scope in INSIDE[narrow.scope] and beyond > math.hypot(_u_w(narrow), _u_w(wide)):
        return f"{figures}: the part draws {ratio:.3g} times what the whole does; check the sensors' calibration, shunt and channels"
    alike = narrow.scope == wide.scope and set(narrow.excludes) == set(wide.excludes)
    if alike and abs(beyond) > math.hypot(_u_w(narrow), _u_w(wide)):
        return f"{figures}: two sensors of the same thing are further apart ({ratio:.3g}) than both can be off; check both"
    return None


def _u_w(energy: Energy) -> float:
    """Return the expanded uncertainty of the mean power; with an unknown gain, of what is known and an allowance."""
    per_w = energy.window_ms / max(1, energy.inferences)
    if energy.gross_u_mj is not None:
        return energy.gross_u_mj / per_w
    known = [term.u_mj for term in energy.budget if term.u_mj is not None and not term.term.startswith("idle_")]
    return math.hypot(UNKNOWN_GAIN_RATIO * energy.mean_power_w, 2 * math.hypot(*known) / per_w)


def _warned(facts: Facts) -> str | None:
    return "; ".join(facts.power_warnings) or None


RULES: tuple[Rule, ...] = (
    Rule(
        "implausible-power",
        "suspect",
        "of several power sensors none of a narrower scope reads more than one of a wider scope, beyond both uncertainties (k = 2)",
        _implausible,
        "a part cannot draw more than the whole: one of the two is wrong; a sensor of unknown gain is allowed 10 %",
    ),
    Rule(
        "power-sensor-warning",
        "note",
        "no power sensor says something that makes one doubt its figures",
        _warned,
        "it knows best what it leaves to the user: a shunt, a calibration, a resolution",
    ),
)
