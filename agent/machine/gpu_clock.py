"""Clock of a Jetson's GPU, from devfreq; values in Hz. Source: Linux Documentation/ABI/testing/sysfs-class-devfreq."""

import re

from edgemeter.agent.machine.machine import Machine, whole_number

# 17000000.gpu (JetPack 6), .ga10b (5), .gv11b and .gp10b (Xavier, TX2), 57000000.gpu (Nano), gpu-gpc-0 (Thor).
GPU = re.compile(r"gpu|\.g[apv]\d+b$", re.IGNORECASE)


def clocks_hz(machine: Machine) -> tuple[float | None, float | None]:
    """Return the GPU's clock now and the highest that it has, of the fastest one; None where there is none.

    The upper limit is the hardware's list, where it is there: the power mode lowers `max_freq`.
    """
    found = []
    for device in machine.find("sys/class/devfreq/*"):
        now = machine.number(device / "cur_freq") if GPU.search(device.name) else None
        listed = [hz for text in (machine.text(device / "available_frequencies") or "").split() if (hz := whole_number(text))]
        highest = max(listed, default=None) or machine.number(device / "max_freq")
        if now and highest:
            found.append((float(now), float(highest)))
    return max(found) if found else (None, None)
