"""The facts of a run in words: its case and settings, its software, the machine, and the machine's conditions."""

from collections.abc import Callable, Mapping
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.contract.case_identity import FIELDS as IDENTITY
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Condition, OtherProcess
from edgemeter.collector.compare.summary import environment

Facts = dict[str, str | None]
# Stands in the identity, and in the machine's facts as well.
_OF_THE_MACHINE = frozenset({"power_mode"})


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(f"{name} {figures.significant(value)}{unit}" for name, value in values.items())


def _process(value: OtherProcess) -> str:
    remainder = f" and {value.count - 1} more" if value.count > 1 else ""
    return f"{value.name} (pid {value.pid}{remainder}), {_share(value.load_ratio)} of all cores"


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
    "load_window_ms": ("Load observed for", _in("ms")),
    "agent_load_ratio": ("Load of the agent", _share),
    "served_load_ratio": ("Load of the measured server", _share),
    "busiest_other": ("Busiest other process", _process),
    "memory_available_mb": ("Memory available", _in("MB")),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "gpu_clock_hz": ("GPU clock", _in("MHz", 1e6)),
    "gpu_clock_max_hz": ("Highest GPU clock allowed", _in("MHz", 1e6)),
    "temperature_limits_c": ("Throttles or shuts down at", _each(" °C")),
    "throttle_flags": ("Throttle flags", hex),
    "throttle_events": ("Throttle events since boot", _each()),
    "clock_synchronised": ("Wall clock synchronised", _yes_or_no),
    "clock_offset_ms": ("Wall clock offset", _in("ms")),
    "clock_error_ms": ("Wall clock error, at most", _in("ms")),
    "attached": ("Attached", ", ".join),
}


def facts_of(condition: Condition) -> Facts:
    """Return what was read of the machine, by name."""
    names = (name for name in condition.__struct_fields__ if name != "when")
    values = {name: value for name in names if (value := getattr(condition, name)) not in (None, {}, ())}
    return {called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]}


def machine_facts(run: RunRecord) -> Facts:
    """Return what the machine of a run is, in words."""

    def reported(*fields: str) -> str | None:
        return " ".join(text for field in fields if (text := environment([run], field))) or None

    memory_mb = run.environment.memory_mb
    return {
        "Board": reported("board"),
        "Processor": reported("soc", "cpu"),
        "Cores": reported("cores"),
        "Memory": None if memory_mb is None else f"{figures.significant(memory_mb / 1000)} GB",
        "System": reported("os"),
        "Kernel": reported("kernel", "arch"),
        "Firmware": reported("firmware"),
        "Governor": reported("governor"),
        "Power mode": reported("power_mode"),
        "Virtualisation": reported("virtualisation"),
        "Attached": reported("attached"),
        "Agent": reported("agent"),
        "Python": reported("python"),
        "Libraries": ", ".join(f"{name} {version}" for name, version in run.environment.libraries.items()) or None,
    }


def grouped_facts(run: RunRecord) -> dict[str, Facts]:
    """Return all facts of a run by what they are about; of two runs the same facts have the same names."""
    key, machine = key_of(run), machine_facts(run)
    del machine["Libraries"]
    groups: dict[str, Facts] = {
        "Case and settings": {
            **{field.name.replace("_", " ").capitalize(): field.text(key) for field in IDENTITY if field.name not in _OF_THE_MACHINE},
            "Model file": f"{run.model.file}, {run.model.size_bytes:,} bytes",
        },
        "Run": {
            "Suite": run.suite,
            "Mode": run.mode,
            "Seed": str(run.seed),
            "Queries": f"{run.latency.count:,}",
            "Warm-up": f"{run.warm_up.queries:,} queries, {'steady' if run.warm_up.steady else 'never steady'}",
            "Verdict": "; ".join([run.verdict.state, *run.verdict.reasons]),
            "Power sensor": f"{run.energy.sensor} at {run.energy.scope}" if run.energy else None,
        },
        "Software": {
            **{name: machine.pop(name) for name in ("System", "Kernel", "Firmware", "Agent", "Python")},
            **run.environment.libraries,
            **run.runtime.facts,
        },
        "Machine": machine,
    }
    groups |= {f"Conditions {condition.when}": facts_of(condition) for condition in run.conditions}
    if (scheduling := run.scheduling) is not None and scheduling.preemptions is not None:
        waited_ms = "" if scheduling.waited_ms is None else f", {figures.significant(scheduling.waited_ms)} ms ready without a core"
        groups.setdefault("Conditions during", {})["Scheduling"] = f"{figures.count(scheduling.preemptions, 'preemption')}{waited_ms}"
    return groups
