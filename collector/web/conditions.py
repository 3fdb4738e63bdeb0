"""What stood around a run (heat, clocks, load, memory), in words: every field that was read, none by its name in the record."""

from collections.abc import Callable, Mapping
from typing import Any

from edgemeter.agent.records import Condition, OtherProcess
from edgemeter.collector.show import figures


def facts_of(one: Condition) -> dict[str, str | None]:
    """Return what one look at the machine read, by what it is called."""
    values = {name: value for name in one.__struct_fields__ if name != "when" and (value := getattr(one, name)) not in (None, {}, ())}
    return {called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]}


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(f"{name} {figures.significant(value)}{unit}" for name, value in values.items())


def _process(value: OtherProcess) -> str:
    more = f" and {value.count - 1} more" if value.count > 1 else ""
    return f"{value.name} (pid {value.pid}{more}), {_share(value.load_ratio)} of all cores"


# By the record's name: what people call it, and how its value is written.
FIELDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "temperatures_c": ("Temperature", _each(" °C")),
    "clock_hz": ("Clock", _in("MHz", 1e6)),
    "clock_max_hz": ("Highest clock allowed", _in("MHz", 1e6)),
    "throttled_now": ("Throttled", _yes_or_no),
    "throttled_since_boot": ("Throttled since boot", _yes_or_no),
    "under_voltage_now": ("Under-voltage", _yes_or_no),
    "under_voltage_since_boot": ("Under-voltage since boot", _yes_or_no),
    "other_load_ratio": ("Load of other processes", _share),
    "steal_ratio": ("Time taken by other guests", _share),
    "swap_used_mb": ("Swap in use", _in("MB")),
    "load_window_ms": ("Load was watched for", _in("ms")),
    "agent_load_ratio": ("Load of the agent", _share),
    "busiest_other": ("Busiest other process", _process),
    "memory_available_mb": ("Memory left", _in("MB")),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "gpu_clock_hz": ("GPU clock", _in("MHz", 1e6)),
    "gpu_clock_max_hz": ("Highest GPU clock allowed", _in("MHz", 1e6)),
    "temperature_limits_c": ("Throttles or stops at", _each(" °C")),
    "throttle_flags": ("Throttle flags", hex),
    "throttle_events": ("Throttle events since boot", _each()),
    "clock_synchronised": ("Wall clock synchronised", _yes_or_no),
    "clock_offset_ms": ("Wall clock to be corrected by", _in("ms")),
    "clock_error_ms": ("Wall clock wrong by at most", _in("ms")),
    "attached": ("Attached", ", ".join),
}
