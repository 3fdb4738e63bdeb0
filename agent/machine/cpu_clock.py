"""Clocks and governor of the processor, from cpufreq. Source: Linux Documentation/admin-guide/pm/cpufreq.rst; values in kHz."""

from edgemeter.agent.machine.machine import Machine

CPUS = "sys/devices/system/cpu"


def governor(machine: Machine) -> str | None:
    """Return the governor; several, where the clusters of a processor differ, are joined by `+`."""
    told = [machine.line(path) for path in machine.find(f"{CPUS}/cpufreq/policy*/scaling_governor")]
    told = told or [machine.line(path) for path in machine.find(f"{CPUS}/cpu[0-9]*/cpufreq/scaling_governor")]
    return "+".join(sorted({text for text in told if text})) or None


def clocks_hz(machine: Machine, cpu: int | None = None) -> tuple[float | None, float | None]:
    """Return the clock now and the highest clock that the hardware has, of one core; without `cpu`, of the fastest now.

    The upper limit is the hardware's, not the policy's: thermal throttling lowers the policy's.
    """
    where = [f"{CPUS}/cpu{cpu}/cpufreq"] if cpu is not None else []
    found = [pair for path in where if (pair := _clocks(machine, path))]
    found = found or [pair for path in machine.find(f"{CPUS}/cpufreq/policy*") if (pair := _clocks(machine, str(path)))]
    return max(found) if found else (None, None)


def _clocks(machine: Machine, path: str) -> tuple[float, float] | None:
    now = machine.number(f"{path}/scaling_cur_freq")
    highest = machine.number(f"{path}/cpuinfo_max_freq") or machine.number(f"{path}/scaling_max_freq")
    return (now * 1e3, highest * 1e3) if now and highest else None
