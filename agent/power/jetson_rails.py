"""A Jetson's rails: which add up to its total, which lie inside others, and what it leaves out.

Every reader of a Jetson (hwmon, IIO, jtop, a log of tegrastats) passes the rails by name and gets
the total. A rail that is not part of the total is shown and never added: on AGX Orin
`VDDQ_VDD2_1V8AO` lies inside `VIN_SYS_5V0`. If a rail of the total is missing, or no row of the
table fits, there is no total.

Source: NVIDIA Jetson Linux Developer Guide r36.4.3 and 32.6.1, the pages on power; L4T 32.6.1
device trees for TX1 and TX2 NX. Shunts: Linux arch/arm64/boot/dts/nvidia (Tegra234: 5 mOhm on
p3767, 2 mOhm on p3701).
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.machine.board import DEVICE_TREE
from edgemeter.agent.power import USB_DEVICES, Description, Rail
from edgemeter.agent.power.sysfs import optional_text
from edgemeter.agent.power.values import plausible_power_w

# Source: the INA3221's shunt register counts 40 uV (Linux drivers/hwmon/ina3221.c).
SHUNT_STEP_UV = 40.0
# It counts up to 163.8 mV.
SHUNT_LAST_UV = 163_800.0
# Nobody has measured the gain of these modules against a reference; 5% (k = 1) is a cautious
# default, wide enough for the deviations that Shalavi et al. (arXiv 2306.13107) report of
# calibrated boards. `gain_u_ratio` in the settings replaces it.
GAIN_U_RATIO = 0.05
# Parts may exceed the whole by this, because they are not read at the same time.
PARTS_RATIO = 1.1
MODULE_EXCLUDES = ("carrier board", USB_DEVICES, "fan", "power-supply loss")
# Twice what the supplies of the largest give.
HIGHEST_W = 1000.0
# A channel that is connected to nothing.
NOT_CONNECTED = re.compile(r"NC[ _]?\d*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JetsonBoard:
    """A family of Jetsons with the same rails in the total.

    `total` maps the rails that add up to the usual voltage of each, which gives the step where a
    reader has none (None: unknown). `parts` lie inside the total; `words` occur in its device tree.
    """

    name: str
    words: tuple[str, ...]
    total: Mapping[str, float | None]
    parts: frozenset[str] = frozenset()
    shunt_uohm: int = 5000
    scope: Scope = "module"
    excludes: tuple[str, ...] = MODULE_EXCLUDES
    gain_u_ratio: float | None = GAIN_U_RATIO

    def usual_step_w(self, rail: str) -> float | None:
        volts = self.total[rail]
        return None if volts is None else SHUNT_STEP_UV / self.shunt_uohm * volts


JETSON_BOARDS = (
    JetsonBoard(
        "Jetson Orin Nano, Orin NX, Xavier NX or TX2 NX",
        ("tegra234", "orin", "tegra194", "xavier", "tegra186", "tx2"),
        {"VDD_IN": 5.0},
        frozenset({"VDD_CPU_GPU_CV", "VDD_CPU_GPU", "VDD_SOC"}),
    ),
    JetsonBoard(
        "Jetson TX1 or TX2",
        ("tegra210", "tx1", "tegra186", "tx2"),
        {"VDD_IN": 19.0},
        frozenset(
            {
                "VDD_SYS_CPU",
                "VDD_SYS_GPU",
                "VDD_SYS_SOC",
                "VDD_SYS_DDR",
                "VDD_4V0_WIFI",
                "VDD_CPU",
                "VDD_GPU",
            }
        ),
    ),
    JetsonBoard(
        "Jetson Nano",
        ("tegra210", "jetson nano"),
        {"POM_5V_IN": 5.0},
        frozenset({"POM_5V_GPU", "POM_5V_CPU"}),
    ),
    JetsonBoard(
        "Jetson AGX Xavier",
        ("tegra194", "xavier"),
        {"GPU": 19.4, "CPU": 19.4, "SOC": 19.4, "CV": 19.4, "VDDRQ": 19.4, "SYS5V": 5.0},
        excludes=("module rails without a monitor", *MODULE_EXCLUDES),
    ),
    JetsonBoard(
        "Jetson AGX Orin",
        ("tegra234", "orin"),
        {"VDD_GPU_SOC": 20.0, "VDD_CPU_CV": 20.0, "VIN_SYS_5V0": 5.0},
        shunt_uohm=2000,
        excludes=("module rails without a monitor", *MODULE_EXCLUDES),
    ),
    JetsonBoard(
        "Jetson Thor",
        ("tegra264", "thor"),
        # Its INA238's shunt and range are not published.
        {"VIN": None},
        frozenset({"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"}),
        scope="board-input",
        excludes=("power-supply loss",),
        gain_u_ratio=None,
    ),
)
THOR = JETSON_BOARDS[-1]


def device_tree_names(root: Path) -> str:
    """Return the machine's names in the device tree, in lower case; empty without one."""
    files = ([root / tree / file for tree in DEVICE_TREE] for file in ("compatible", "model"))
    names = (next(filter(None, map(optional_text, paths)), "") for paths in files)
    return " ".join(names).replace("\0", " ").lower()


def is_rail(label: str) -> bool:
    """Return whether the channel of that label is connected."""
    return NOT_CONNECTED.fullmatch(label) is None


def board_of(rails: Collection[str], device_tree: str = "") -> JetsonBoard:
    """Return the board whose total these rails make; of several, the one with exactly these rails.

    Raises:
        UnavailableError: there is none; the message lists the rails seen and those missing.
    """
    named = [
        board for board in JETSON_BOARDS if any(word in device_tree for word in board.words)
    ] or JETSON_BOARDS
    fitting = [board for board in named if set(board.total) <= set(rails)]
    if not fitting:
        seen_text = f"no total from the rails seen ({', '.join(sorted(rails)) or 'none'})"
        nearest = max(
            named, key=lambda board: len({*board.total, *board.parts}.intersection(rails))
        )
        if len(named) > 1 and not {*nearest.total, *nearest.parts}.intersection(rails):
            raise UnavailableError(
                f"{seen_text}: no Jetson that we know has these; report it with the board's name"
            )
        missing = ", ".join(rail for rail in nearest.total if rail not in rails)
        raise UnavailableError(
            f"{seen_text}: that of a {nearest.name} needs {missing} too; see that nothing is cut "
            "off or disabled"
        )
    return max(
        fitting,
        key=lambda board: (board.scope == "board-input", len(board.parts.intersection(rails))),
    )


def total_w(board: JetsonBoard, rails: Iterable[Rail]) -> float:
    """Return the board's total from its rails.

    Raises:
        TransientError: a rail was not read, or the total is larger than any board's.
    """
    powers_w = {rail.name: rail.power_w for rail in rails}
    total = 0.0
    for name in board.total:
        power_w = powers_w.get(name)
        if power_w is None:
            raise TransientError(
                f"rail {name!r} gave no power this time, and the total of a {board.name} is made "
                f"of {', '.join(board.total)}"
            )
        total += plausible_power_w(power_w, HIGHEST_W, f"rail {name!r}")
    return total


def describe(
    sensor: str,
    board: JetsonBoard,
    rails: Sequence[Rail],
    period_ms: float,
    steps_w: Mapping[str, float | None] | None = None,
    warnings: Sequence[str] = (),
) -> Description:
    """Return the description of a sensor of these rails.

    `steps_w` are the steps of the total's rails, if known.
    """
    reader_steps_w = steps_w or {}
    steps = [reader_steps_w.get(rail) or board.usual_step_w(rail) for rail in board.total]
    # Each rail is rounded by itself: the steps of a sum add up in squares.
    resolution_w = (
        None if None in steps else math.hypot(*(step for step in steps if step is not None))
    )
    return Description(
        id=f"{sensor}:{'+'.join(board.total)}",
        scope=board.scope,
        excludes=board.excludes,
        kind="power",
        period_ms=period_ms,
        resolution_w=resolution_w,
        gain_u_ratio=board.gain_u_ratio,
        warnings=(*warnings, *_doubts(board, rails)),
    )


def _doubts(board: JetsonBoard, rails: Sequence[Rail]) -> list[str]:
    parts = {
        rail.name: rail.power_w
        for rail in rails
        if rail.name in board.parts and rail.power_w is not None
    }
    parts_w, whole_w = sum(parts.values()), total_w(board, rails)
    if not parts or parts_w <= whole_w * PARTS_RATIO:
        return []
    parts_text = ", ".join(f"{name} {power_w:.2f} W" for name, power_w in parts.items())
    return [
        (
            f"the rails inside {'+'.join(board.total)} draw more than it does ({parts_text}; the "
            f"whole {whole_w:.2f} W): "
            "the device tree may name the rails in another order than the board has them; compare "
            "with a meter at the input"
        )
    ]
