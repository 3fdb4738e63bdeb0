"""The power that a machine can draw at its input, at least and at most, by its board: what lies outside is no power but another unit.

The figures are bounds, not specifications. `highest_w` is what its supply or input can give, with all that may hang on it, `lowest_w` about
half of what it has been seen to draw idle, without a display. A factor of 10 in the shunt or of 1000 in the unit leaves them; HATs, drives
and accelerators do not. Source: ratings of the makers' supplies and power modes, as stated in each line.
"""

from dataclasses import dataclass

from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.contract.record_figures import Scope

# What a supply draws at the wall, over what it gives. Source: the least efficiency of old linear adapters and of supplies at low load, 70%.
WALL_RATIO = 1.4
# A single reading may be of an inrush, or of a noisy sensor.
READING_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class PowerRange:
    """The power that a machine draws at its input, W, on average over seconds: our bounds, beyond the makers' ratings (`supply`)."""

    machine: str
    lowest_w: float
    highest_w: float
    supply: str

    def lowest_in(self, scope: Scope) -> float:
        """Return the least mean power of a running machine in that scope, W; 0 of parts, which may be off."""
        return self.lowest_w if scope in {"wall-ac", "board-input", "module"} else 0.0

    def highest_in(self, scope: Scope) -> float:
        """Return the largest mean power in that scope, W; an added graphics card has a supply of its own."""
        if scope == "gpu-board":
            return ANY_MACHINE.highest_w
        return self.highest_w * (WALL_RATIO if scope == "wall-ac" else 1)


# The most, a server of eight accelerators; the least, what a Pi Zero draws halted.
ANY_MACHINE = PowerRange("machine", 0.05, 25_000, "NVIDIA DGX H100 and B200: 10.2 and 14.3 kW")
AGX_XAVIER = PowerRange("Jetson AGX Xavier", 1.5, 120, "modes of 10 to 30 W, an adapter of 65 W")
JETSON_TX = PowerRange("Jetson TX1 or TX2", 0.5, 90, "modes of 7.5 and 15 W, an adapter of 90 W")
# What the board's model begins with, or contains; the first that fits.
BOARDS: tuple[tuple[str, PowerRange], ...] = (
    ("raspberry pi 5", PowerRange("Raspberry Pi 5", 1.0, 40, "5.1 V, 5 A (27 W); PoE+ gives 25.5 W")),
    ("raspberry pi compute module", PowerRange("Raspberry Pi Compute Module", 0.5, 60, "carriers with PCIe: 12 V, 5 A")),
    ("raspberry pi 4", PowerRange("Raspberry Pi 4", 0.8, 35, "5.1 V, 3 A (15 W); PoE+ gives 25.5 W")),
    ("raspberry pi zero", PowerRange("Raspberry Pi Zero", 0.15, 13, "5 V, 2.5 A")),
    (
        "raspberry pi pico",
        PowerRange("Raspberry Pi Pico", 0.002, 15, "5 V, up to 3 A of USB-C; asleep 0.8 mA (its data sheet, power consumption)"),
    ),
    ("raspberry pi", PowerRange("Raspberry Pi", 0.4, 30, "5 V, 2.5 A; PoE gives 15.4 W")),
    ("agx thor", PowerRange("Jetson AGX Thor", 5, 400, "modes up to 130 W; 240 W with what it feeds")),
    ("agx orin", PowerRange("Jetson AGX Orin", 1.5, 200, "modes of 15 to 60 W, an adapter of 90 W")),
    ("agx xavier", AGX_XAVIER),
    ("jetson-agx", AGX_XAVIER),
    ("xavier nx", PowerRange("Jetson Xavier NX", 1.0, 70, "modes of 10 to 20 W, an adapter of 45 W")),
    ("orin nx", PowerRange("Jetson Orin NX", 1.0, 100, "modes of 10 to 40 W, an adapter of 90 W")),
    ("orin nano", PowerRange("Jetson Orin Nano", 1.0, 70, "modes of 7 to 25 W, an adapter of 45 W")),
    ("jetson nano", PowerRange("Jetson Nano", 0.4, 35, "modes of 5 and 10 W; 5 V, 4 A, or 6 A over the header")),
    ("jetson tx", JETSON_TX),
    ("quill", JETSON_TX),
    ("phanbell", PowerRange("Coral Dev Board", 0.8, 25, "5 V, 3 A")),
    ("coral dev board", PowerRange("Coral Dev Board", 0.4, 25, "5 V, 3 A")),
)
# Machines without a line, by their logical cores: one with few of them has few accelerators, and one socket.
MOST_CORES, SMALL_PC = 16, PowerRange("PC of up to 16 cores", 0.5, 2600, "a socket gives 3.7 kW, less what its supply loses")
SMALL_ARM = PowerRange("ARM machine of up to 16 cores", 0.15, 1000, "the largest known: Apple's and Ampere's workstations")


def power_range(environment: Environment) -> PowerRange:
    """Return what this machine may draw; in a virtual machine, whose host may be any, the widest range."""
    model = (environment.board or "").lower()
    listed = next((limits for name, limits in BOARDS if name in model), None)
    if listed is not None:
        return listed
    if environment.cores > MOST_CORES or environment.virtualisation not in {None, "docker", "podman", "kubernetes", "systemd-nspawn"}:
        return ANY_MACHINE
    return SMALL_PC if environment.arch in {"x86_64", "i686"} else SMALL_ARM
