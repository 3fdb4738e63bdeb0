"""Idle power around a block, and how well the readings show it."""

import math
import statistics
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.window import Window

# The number of blocks of each idle stretch.
BLOCKS = 3
# Neighbouring blocks of an idle machine are correlated: they count as half as many independent
# ones.
ALIKE = 2.0
FEWEST_NEW_VALUES = 4


@dataclass(frozen=True, slots=True)
class IdlePower:
    """Idle power, as the means of the stretches before and after the block, in W.

    The mean of one is None without that stretch. There are also the mean of both, and its standard
    uncertainty.

    `freedom` are the degrees of freedom of that uncertainty. `drift_u_w` is None if there is one
    stretch only, because the drift during the block is then unknown.
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
        """Return the standard uncertainty of the mean over another stretch of that length."""
        return self.block_scatter_w * math.sqrt(ALIKE * self.block_ns / length_ns)


def idle_power(
    curve: Curve, before: Window | None, after: Window | None, step_u_w: float | None
) -> IdlePower | None:
    """Return the idle power, None without a stretch.

    `step_u_w` is the standard uncertainty that the sensor's steps give one reading.
    """
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
        # During the block idle power was within twice the range of the blocks (rectangular, GUM
        # 4.3.7); a fall may go on by as much.
        drift_u_w=max(
            float(np.ptp(blocks_w)) / math.sqrt(3),
            *(float(part_w[0] - part_w[-1]) for part_w in each_w),
        )
        if len(stretches) == 2
        else None,
        quantisation_u_w=None
        if step_u_w is None
        else step_u_w * max(curve.same_ratio(window) for window in stretches),
        block_scatter_w=scatter_w,
        block_ns=statistics.fmean(window.length_ns for window in stretches) / BLOCKS,
    )


def calm(curve: Curve, window: Window | None, skipped_ns: int, spacing_ns: float) -> Window | None:
    """Return an idle stretch without its beginning and its last reading.

    The load begins after the last reading. None if too little is left.
    """
    if window is None:
        return None
    length_ns = window.length_ns - skipped_ns - int(spacing_ns)
    inner = Window(window.start_ns + skipped_ns, window.start_ns + skipped_ns + max(1, length_ns))
    read_ns = curve.times_ns[curve.inside(inner)]
    # The sensor may have stopped early.
    enough = min(length_ns / spacing_ns, read_ns.size) >= FEWEST_NEW_VALUES
    return inner if enough and np.ptp(read_ns) >= length_ns / 2 else None
