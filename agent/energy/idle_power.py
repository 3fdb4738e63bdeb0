"""Idle power around a block, and how well the readings show it."""

import math
import statistics
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.window import Window

# Each idle stretch is cut into so many blocks.
BLOCKS = 3
# Neighbouring blocks of an idle machine take after each other: they know as much as half as many independent ones.
ALIKE = 2.0
FEWEST_NEW_VALUES = 4


@dataclass(frozen=True, slots=True)
class IdlePower:
    """Idle power: the means of the stretches before and after, None without one, of both, and its standard uncertainty, W.

    `freedom` are that uncertainty's degrees of freedom. `drift_u_w` is None where one side is known only: how far idle power moved during
    the block is then not known.
    """

    before_w: float | None
    after_w: float | None
    mean_w: float
    u_w: float
    freedom: float
    drift_u_w: float | None
    quantisation_u_w: float | None
    block_scatter_w: float
    block_ns: float

    def stretch_u_w(self, length_ns: float) -> float:
        """Return how far the mean over another stretch of that length may lie off."""
        return self.block_scatter_w * math.sqrt(ALIKE * self.block_ns / length_ns)


def idle_power(curve: Curve, before: Window | None, after: Window | None, step_u_w: float | None) -> IdlePower | None:
    """Return the idle power; None without a stretch. `step_u_w` is the standard uncertainty of one reading by the sensor's steps."""
    stretches = [window for window in (before, after) if window is not None]
    if not stretches:
        return None
    means_w = [curve.mean_w(window) for window in stretches]
    each_w = [curve.means_w(window, BLOCKS) for window in stretches]
    blocks_w = np.concatenate(each_w)
    scatter_w = float(np.std(blocks_w, ddof=1))
    return IdlePower(
        before_w=means_w[0] if before else None,
        after_w=means_w[-1] if after else None,
        mean_w=statistics.fmean(means_w),
        u_w=scatter_w * math.sqrt(ALIKE / blocks_w.size),
        freedom=blocks_w.size - 1,
        # Meanwhile it was within twice the range of these (rectangular, GUM 4.3.7), and what falls may fall on by as much.
        drift_u_w=max(float(np.ptp(blocks_w)) / math.sqrt(3), *(float(part_w[0] - part_w[-1]) for part_w in each_w))
        if len(stretches) == 2
        else None,
        quantisation_u_w=None if step_u_w is None else step_u_w * max(curve.same_ratio(window) for window in stretches),
        block_scatter_w=scatter_w,
        block_ns=statistics.fmean(window.length_ns for window in stretches) / BLOCKS,
    )


def calm(curve: Curve, window: Window | None, skipped_ns: int, spacing_ns: float) -> Window | None:
    """Return an idle stretch without its beginning and its last reading, beyond which the load begins; None where too little is left."""
    if window is None:
        return None
    length_ns = window.length_ns - skipped_ns - int(spacing_ns)
    inner = Window(window.start_ns + skipped_ns, window.start_ns + skipped_ns + max(1, length_ns))
    read_ns = curve.times_ns[curve.inside(inner)]
    # A sensor that stops early knows nothing of the rest.
    enough = min(length_ns / spacing_ns, read_ns.size) >= FEWEST_NEW_VALUES
    return inner if enough and np.ptp(read_ns) >= length_ns / 2 else None
