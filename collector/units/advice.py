"""What to look at first on a sick board: what it shows itself, then what is usually behind it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from edgemeter.collector.trend.run_figures import Fingerprint

WARMER_C = 6.0
THROTTLED_RATIO = 0.05
USUAL = {
    "energy": (
        "power supply and cable",
        "the meter, by changing it with a healthy board's",
        "what is plugged in (USB)",
        "cooling",
        "firmware",
    ),
    "latency": (
        "cooling",
        "power supply and cable",
        "firmware and power mode",
        "USB port of the accelerator",
        "SD card",
        "what else runs on it",
    ),
    "accuracy": ("the model and data files (their hashes)", "memory errors", "SD card"),
}


@dataclass(frozen=True, slots=True)
class Health:
    """What the newest runs of a board show: its usual temperature, the shares of throttled and under-supplied runs, what stands below."""

    temperature_c: float | None
    throttled_ratio: float | None
    under_voltage_ratio: float | None
    below: Fingerprint


def advice(metric: str, own: Health, others: Sequence[Health]) -> list[str]:
    """Return what to look at, the likeliest first: evidence before habit."""
    found = []
    if own.under_voltage_ratio:
        found.append(f"power supply and cable: too low a voltage in {own.under_voltage_ratio:.0%} of its runs")
    if own.throttled_ratio and own.throttled_ratio > THROTTLED_RATIO:
        found.append(f"cooling: throttled in {own.throttled_ratio:.0%} of its runs")
    temperatures_c = [other.temperature_c for other in others if other.temperature_c is not None]
    if own.temperature_c is not None and temperatures_c and own.temperature_c - median(temperatures_c) > WARMER_C:
        found.append(f"cooling: {own.temperature_c:.0f} °C, the others {median(temperatures_c):.0f} °C")
    for name in Fingerprint.__struct_fields__:
        usual, count = Counter(getattr(other.below, name) for other in others).most_common(1)[0]
        if getattr(own.below, name) != usual and count > len(others) / 2:
            found.append(
                f"{name.replace('_', ' ')}: {getattr(own.below, name) or 'none'}, {count} of {len(others)} others have {usual or 'none'}"
            )
    seen = {text.partition(":")[0] for text in found}
    habits = USUAL.get(metric.partition("-")[0], USUAL["energy"])
    return found + [habit for habit in habits if habit not in seen]
