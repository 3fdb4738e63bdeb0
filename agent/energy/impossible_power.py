"""Power that no machine draws: a mean at or below 0 W, in words that name what is likely wrong with that kind of sensor, and the remedy."""

from edgemeter.agent.power import Description

# The sensors that know a setting `direction`.
REVERSIBLE = frozenset({"ina2xx", "ina_i2c", "powerz"})
_PLUG_TURNED = "its clamp or its wiring is reversed: turn the clamp around, or exchange line and load"
_PLUG_LOW = (
    "the load is below what the plug can show, or is not plugged into it: use a meter in the board's supply (scope board-input: an INA2xx "
    "or a USB-C meter)"
)
_SUPPLY_TURNED = "its shunt or its cable is reversed: exchange its two ends"
_SUPPLY_LOW = "the current bypasses its shunt or cable, or is below its step: put it into the only supply of the board"
_RAILS = "its offset exceeds what its rails draw: calibrate it, or use a meter in the board's supply (scope board-input)"


def power_refusal(description: Description, power_w: float, when: str) -> str | None:
    """Return why a mean power of a sensor gives no energy; None of a power above 0 W. `when` follows the figure: "while idle"."""
    if power_w > 0:
        return None
    return f"it shows a mean of {power_w:.3g} W {when}, which no machine draws: {_cause(description, power_w)}"


def _cause(description: Description, power_w: float) -> str:
    """Return the likely cause and the remedy, by the scope that the sensor sees, by its name, and by the sign."""
    if description.scope == "wall-ac":
        return _PLUG_TURNED if power_w < 0 else _PLUG_LOW
    name = description.id.partition(":")[0]
    if description.scope != "board-input" and name not in REVERSIBLE:
        return _RAILS
    if power_w == 0:
        return _SUPPLY_LOW
    return f'{_SUPPLY_TURNED}, or set direction = "reverse" in [sensors.{name}]' if name in REVERSIBLE else _SUPPLY_TURNED
