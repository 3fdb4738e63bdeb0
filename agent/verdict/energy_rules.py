"""Rules on the power sensors."""

import math
from itertools import combinations

from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Energy, Scope
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, RuleEvidence

# The wider scopes that contain each scope. A GPU's board is on no module.
INSIDE: dict[Scope, tuple[Scope, ...]] = {
    scope: WIDEST_FIRST[:index] for index, scope in enumerate(WIDEST_FIRST)
}
INSIDE["gpu-board"] = ("board-input", "wall-ac")
# If a sensor's gain is unknown, a part of a board may exceed the total by this share.
UNKNOWN_GAIN_RATIO = 0.10


def implausible_power(facts: Facts) -> RuleEvidence | None:
    """A part cannot draw more than the whole, and two sensors of one scope agree.

    Deviations count beyond both uncertainties (k = 2).
    """
    for energy, other in combinations(facts.energies, 2):
        narrow, wide = (energy, other) if other.scope in INSIDE[energy.scope] else (other, energy)
        beyond_w, u_w = (
            narrow.mean_power_w - wide.mean_power_w,
            math.hypot(_u_w(narrow), _u_w(wide)),
        )
        is_part = wide.scope in INSIDE[narrow.scope]
        is_same = narrow.scope == wide.scope and set(narrow.excludes) == set(wide.excludes)
        if (is_part and beyond_w > u_w) or (is_same and abs(beyond_w) > u_w):
            return RuleEvidence(
                {"power_w": narrow.mean_power_w, "other_power_w": wide.mean_power_w},
                f"{narrow.sensor} ({narrow.scope}) against {wide.sensor} ({wide.scope})",
            )
    return None


def _u_w(energy: Energy) -> float:
    """Return the expanded uncertainty of the mean power, or an allowance if it is unknown."""
    return (
        UNKNOWN_GAIN_RATIO * energy.mean_power_w
        if energy.mean_power_u_w is None
        else energy.mean_power_u_w
    )


def lost_sensor(facts: Facts) -> RuleEvidence | None:
    """Energies at the wall must not go on with a module's, which leave out a part of the board."""
    return (
        RuleEvidence(subject="; ".join(facts.lost_sensors))
        if facts.energies and facts.lost_sensors
        else None
    )


def power_sensor_warning(facts: Facts) -> RuleEvidence | None:
    """The warnings of a driver about its sensor: an unconfirmed shunt, a coarse resolution."""
    return RuleEvidence(subject="; ".join(facts.power_warnings)) if facts.power_warnings else None


RULES = (
    Rule(
        "implausible-power",
        "disturbed",
        "two power sensors contradict each other: {subject} read {power_w:.4g} and "
        "{other_power_w:.4g} W",
        "Check wiring and shunt of both sensors.",
        implausible_power,
    ),
    Rule(
        "lost-sensor",
        "disturbed",
        "a power sensor is absent or stopped ({subject}), so the energy is another sensor's",
        "Reconnect it, or name the sensors to use as `power` in the configuration.",
        lost_sensor,
    ),
    Rule(
        "power-sensor-warning",
        "note",
        "the power sensor warns: {subject}",
        "Follow the warning.",
        power_sensor_warning,
    ),
)
