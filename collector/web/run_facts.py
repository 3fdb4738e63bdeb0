"""The facts of a run in words: its machine and the machine's conditions."""

from collections.abc import Callable, Mapping
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.collector.compare.summary import environment

Facts = dict[str, str | None]


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(f"{name} {figures.significant(value)}{unit}" for name, value in values.items())


def _process(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name}, {_share(ratio)} of all cores" for name, ratio in shares.items())


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
    "served_load_ratio": ("Load of the measured server", _share),
    "busiest_other": ("Busiest other process", _process),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "throttle_events": ("Throttle events since boot", _each()),
}


def facts_of(condition: Condition) -> Facts:
    """Return what was read of the machine, by name."""
    names = (name for name in condition.__struct_fields__ if name != "when")
    values = {name: value for name in names if (value := getattr(condition, name)) not in (None, {}, ())}
    return {called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]}


def machine_facts(run: RunRecord) -> Facts:
    """Return what the machine of a run is, in words."""

    def reported(*fields: str) -> str | None:
        return " ".join(text for field in fields if (text := environment([run.environment], field))) or None

    return {
        "Board": reported("board"),
        "Processor": reported("cpu"),
        "Cores": reported("cores"),
        "System": reported("os"),
        "Kernel": reported("kernel", "arch"),
        "Firmware": reported("firmware"),
        "Governor": reported("governor"),
        "Power mode": reported("power_mode"),
        "Virtualisation": reported("virtualisation"),
        "Attached": reported("attached"),
        "Agent": reported("agent"),
        "Libraries": ", ".join(f"{name} {version}" for name, version in run.environment.libraries.items()) or None,
    }
