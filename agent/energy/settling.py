"""How late a sensor shows what it measures, from how its readings fall once the load has ended, and the energy that it shows too late.

A sensor that lags, averages or holds its value shows power late and loses none of it: what it shows above idle power after the timed part
belongs to the timed part, and what it showed at the beginning of the timed part belongs to what went before. The area under the
falling readings, over the height that they fall from, is the mean delay of the sensor whatever the form of its response, and
the delay times the difference of the levels before end and before begin is what the readings of the timed part lack.
Source: conservation of the area by any linear filter of gain 1; its mean delay is the first moment of its impulse response.
"""

import math
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.curve import PowerCurve, mean_w, stretch_means
from edgemeter.agent.energy.window import Window

# So many delays after a step a first-order lag is within 0.7% of it, and a mean over a window has been there since the second.
SETTLED_DELAYS = 5.0
# How far the readings are looked at first, in spacings of the readings, and by how much further at least each time.
FIRST_SPACINGS = 4.0
FURTHER = 1.1
STRIDE = 2.0
# The rise at the beginning of the timed part is looked for in so much of it at most.
RISE_RATIO = 1 / 2
# Readings so near to idle power, as a share of the step, show nothing of the load any more.
OVER_RATIO = 0.005
# What an idle stretch has to leave beyond that, as a share of it.
IDLE_LEFT_RATIO = 1 / 3
# Readings that lie so far beyond idle power on average, as a share of the step, are neither late nor noise.
EARLY_RATIO = 1 / 2
# The level that the readings fall from is a mean over at least so many spacings.
LEVEL_SPACINGS = 10.0
# A step of fewer of its own standard uncertainties shows no delay.
CLEAR_STEP = 5.0
# Nor does one that is so small a share of the idle power: it may be a drift, and whatever the delay, it is little energy.
LEAST_STEP_RATIO = 0.03


@dataclass(frozen=True, slots=True)
class Settling:
    """How late the sensor is (`delay_s`) and when it has settled after a step; the energy that the timed part's readings lack, mJ.

    `steps_w` is how far the power stepped at the beginning and at the end, once the sensor had settled.
    `least_delay_s` is the same delay had the sensor shown its highest reading to the last.
    `is_reached` is False where it had not settled when the idle stretch ended: then the delay is at least that, and `u_mj` all of it.
    """

    delay_s: float
    settles_s: float
    late_mj: float
    u_mj: float
    steps_w: tuple[float, float]
    least_delay_s: float
    is_reached: bool = True


def settling_after(curve: PowerCurve, timed: Window, idle: Window | None, *, has_rise: bool = True) -> Settling | None:
    """Return what the fall of the readings after the timed part shows; None where there is no idle after it, or no step to it.

    `idle` is the stretch after the timed part, without the margin at its end. A load that changes after its beginning shows no rise
    (`has_rise`): then the fall counts alone, and with it that a step between two readings may be anywhere between them.
    """
    length_ns = FIRST_SPACINGS * curve.spacing_ns
    if idle is None or not _leaves_enough(idle, length_ns, curve):
        return None
    limit_ns = max(length_ns, timed.length_ns * RISE_RATIO)
    while True:
        fall = _fall(curve, timed, idle, length_ns)
        if fall is None:
            return None
        if fall.delay_ns < -EARLY_RATIO * length_ns:
            # No sensor shows a fall before it comes: the power moves by itself, and hides how late the readings are.
            u_mj = math.hypot(fall.area_mj, fall.u_mj)
            return Settling(0.0, length_ns / 1e9, 0.0, u_mj, (fall.step_w, fall.step_w), 0.0)
        rise_mj = _rise_mj(curve, timed, length_ns) if has_rise and length_ns <= limit_ns else None
        risen_ns = 0.0 if rise_mj is None else abs(rise_mj / fall.step_w) * NS_PER_MS
        longest_ns = max(fall.delay_ns, risen_ns)
        if SETTLED_DELAYS * longest_ns <= length_ns or (fall.is_over and FURTHER * risen_ns <= length_ns):
            break
        length_ns = max(FURTHER * length_ns, min(SETTLED_DELAYS * longest_ns, STRIDE * length_ns))
        if not _leaves_enough(idle, length_ns, curve):
            steps_w = (fall.step_w, fall.step_w)
            return Settling(
                fall.delay_ns / 1e9, length_ns / 1e9, fall.area_mj, abs(fall.area_mj), steps_w, fall.least_delay_s, is_reached=False
            )
    # As the sensor showed it; where nothing was read before the timed part, its first reading within.
    before = Window(timed.start_ns - round(max(length_ns, LEVEL_SPACINGS * curve.spacing_ns)), timed.start_ns)
    before_w = mean_w(curve, before)
    steps_w = (fall.step_w + fall.idle_w - before_w, fall.step_w)
    fall_mj = fall.area_mj + (fall.idle_w - before_w) * fall.delay_ns / NS_PER_MS
    rise_mj = fall_mj if rise_mj is None else rise_mj
    # A response that is the same at both edges gives the same twice, but for where the readings fell. Where it is not, either may be right.
    placing_mj = (
        (fall_mj - rise_mj) / 2 if has_rise else _placing_mj(curve, Window(timed.end_ns, timed.end_ns + round(length_ns)), fall.delay_ns)
    )
    u_mj = math.hypot(fall.u_mj, placing_mj)
    return Settling(max(0.0, fall.delay_ns) / 1e9, length_ns / 1e9, (fall_mj + rise_mj) / 2, u_mj, steps_w, fall.least_delay_s)


@dataclass(frozen=True, slots=True)
class _Fall:
    """The excess over idle power for some time after the timed part, and the height from which the power falls."""

    area_mj: float
    u_mj: float
    step_w: float
    idle_w: float
    highest_w: float
    is_over: bool

    @property
    def delay_ns(self) -> float:
        return self.area_mj / self.step_w * NS_PER_MS

    @property
    def least_delay_s(self) -> float:
        return max(0.0, self.area_mj / math.copysign(max(self.highest_w, abs(self.step_w)), self.step_w) / 1000)


def _fall(curve: PowerCurve, timed: Window, idle: Window, length_ns: float) -> _Fall | None:
    """Return the fall within `length_ns` after the timed part; None where no step is to be seen."""
    fallen = Window(idle.start_ns, idle.start_ns + round(length_ns))
    settled_idle = Window(fallen.end_ns, idle.end_ns)
    level_ns = max(length_ns / 2 / SETTLED_DELAYS, LEVEL_SPACINGS * curve.spacing_ns)
    level = Window(max(timed.start_ns, timed.end_ns - round(level_ns)), timed.end_ns)
    idle_w = mean_w(curve, settled_idle)
    step_w = mean_w(curve, level) - idle_w
    noise_w = math.hypot(curve.sampling(settled_idle).u_w, curve.sampling(level).u_w)
    if abs(step_w) <= max(CLEAR_STEP * noise_w, LEAST_STEP_RATIO * abs(idle_w)):
        return None
    # The wandering of the idle power within the area, and what is not known of the level below it.
    u_w = stretch_means(curve, [settled_idle]).u_w
    last = Window(fallen.end_ns - round(length_ns / 3), fallen.end_ns)
    return _Fall(
        area_mj=curve.energy_mj(fallen) - idle_w * length_ns / NS_PER_MS,
        u_mj=u_w * math.hypot(length_ns, math.sqrt(length_ns * settled_idle.length_ns)) / NS_PER_MS,
        step_w=step_w,
        idle_w=idle_w,
        highest_w=float(np.abs(curve.readings(level)[1] - idle_w).max(initial=0.0)),
        is_over=abs(mean_w(curve, last) - idle_w) < OVER_RATIO * abs(step_w),
    )


def _placing_mj(curve: PowerCurve, fallen: Window, delay_ns: float) -> float:
    """Return how uncertain the area of a fall is for where the readings fell.

    Each step may be anywhere between two readings (rectangular, GUM 4.3.7); of a load that is shown to go on for the delay, a few readings
    are seen; and a load that rises to its end falls from a higher level than they had.
    """
    reach_ns = round(LEVEL_SPACINGS * curve.spacing_ns)
    times, powers_w = curve.readings(Window(fallen.start_ns - reach_ns, fallen.end_ns))
    first = max(1, int(np.searchsorted(times, fallen.start_ns)))
    steps_mj = np.diff(times[first - 1 :]) * np.diff(powers_w[first - 1 :]) / math.sqrt(12) / NS_PER_MS
    level_w, later_w = powers_w[: first // 2], powers_w[first // 2 : first]
    shown_on_mj = float(powers_w[:first].std()) * math.sqrt(max(0.0, delay_ns) * curve.spacing_ns) / NS_PER_MS
    rising_mj = float(later_w.mean() - level_w.mean()) * delay_ns / NS_PER_MS if level_w.size else 0.0
    return math.hypot(*steps_mj, shown_on_mj, rising_mj)


def _rise_mj(curve: PowerCurve, timed: Window, length_ns: float) -> float:
    """Return what the readings of the beginning of the timed part lack against those that follow."""
    end_ns = timed.start_ns + round(length_ns)
    return mean_w(curve, Window(end_ns, timed.end_ns)) * length_ns / NS_PER_MS - curve.energy_mj(Window(timed.start_ns, end_ns))


def _leaves_enough(idle: Window, length_ns: float, curve: PowerCurve) -> bool:
    left_ns = idle.length_ns - length_ns
    return left_ns >= max(IDLE_LEFT_RATIO * idle.length_ns, LEVEL_SPACINGS * curve.spacing_ns)
