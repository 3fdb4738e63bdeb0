"""The machine's memory: how much there is, and how much of what should be in it has gone to swap."""

from dataclasses import dataclass

from edgemeter.agent.machine.machine import Machine, whole_number


@dataclass(frozen=True, slots=True)
class MemInfo:
    """Memory of the whole machine in MB (1e6 bytes); None where /proc/meminfo does not say."""

    total_mb: float | None
    available_mb: float | None
    swap_total_mb: float | None
    swap_used_mb: float | None


def read(machine: Machine) -> MemInfo:
    """Return the machine's memory as it is now."""
    fields: dict[str, float] = {}
    for line in (machine.text("proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        kibibytes = whole_number(rest.removesuffix("kB").strip())
        if kibibytes is not None:
            fields[name] = kibibytes * 1024 / 1e6
    total, free = fields.get("SwapTotal"), fields.get("SwapFree")
    used = None if total is None or free is None else max(0.0, total - free)
    return MemInfo(fields.get("MemTotal"), fields.get("MemAvailable"), total, used)
