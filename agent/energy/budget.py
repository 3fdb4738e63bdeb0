"""The uncertainty budget of an energy, with every term by itself.

A term is a standard uncertainty (k = 1) in mJ of the whole block.

By the GUM, the squares of independent terms add up, and the expanded uncertainty is the root of
their sum times k. k is 2 where the terms are well known. It is larger where the greatest term was
estimated from little scatter (Student's t with the effective degrees of freedom of Welch and
Satterthwaite, GUM G.4), so that 95 of 100 intervals hold the truth. An unknown term makes the whole
unknown, not smaller.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.energy.block import Block
from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description

# The share of a normal distribution within k = 2.
CONFIDENCE = math.erf(math.sqrt(2))
# With as many degrees of freedom k is 2.00.
ENOUGH_FREEDOM = 1e4
# The number of blocks of readings whose means are compared. A sensor that looks when it is read
# allows more of them.
BLOCKS, FOLLOWED_BLOCKS = 15, 30
FEWEST_IN_BLOCK, FEWEST_NEW_IN_BLOCK = 3.0, 2.0
# Fewer blocks between random pauses do not show how they scatter.
FEWEST_BREAKS = 4

_NO_STEP = "the sensor states no resolution: use one that does"
# Why a term is unknown, the most important first.
UNKNOWN = {
    "gain": (
        "the sensor states no gain uncertainty: compare it with a better meter, and set gain and "
        "gain_u_ratio in [sensors.NAME]"
    ),
    "offset": _NO_STEP,
    "quantisation": _NO_STEP,
    "idle_quantisation": _NO_STEP,
    "idle_drift": (
        "idle power is known on one side of the work only, for net energy: idle before and after it"
    ),
}

# A standard uncertainty (None: unknown) and its degrees of freedom (None: more than matter).
Term = tuple[float | None, float | None]
Budget = Mapping[str, Term]


def budget_of(
    curve: Curve,
    description: Description,
    timed: Window,
    block: Block,
    breaks_ns: Times | None,
    energy_mj: float,
) -> dict[str, Term]:
    """Return the budget; terms named `idle_*` belong to the net energy only.

    `breaks_ns` are the moments of random pauses.
    """
    length_ms, idle = timed.length_ns / NS_PER_MS, block.idle
    gain, step_w = description.gain_u_ratio, description.resolution_w
    steady = Window(timed.start_ns + min(block.tail.rise_ns, timed.length_ns // 2), timed.end_ns)
    sampling_w, freedom = (
        (0.0, None) if curve.is_counter else sampling(curve, steady, block.spacing_ns, breaks_ns)
    )
    zero_w = (
        description.offset_u_w
        if step_w is None or description.offset_u_w is not None
        else step_w / math.sqrt(3)
    )
    if curve.is_counter:
        zero_mj: float | None = 0.0
        steps_mj = None if curve.step_mj is None else curve.step_mj / math.sqrt(6)
    else:
        zero_mj = None if zero_w is None else zero_w * length_ms
        steps_mj = (
            None if step_w is None else step_w / math.sqrt(12) * curve.same_ratio(timed) * length_ms
        )
    terms: dict[str, Term] = {
        "gain": (None if gain is None else gain * abs(energy_mj), None),
        "gain_drift": (description.gain_drift_ratio / math.sqrt(3) * abs(energy_mj), None),
        "offset": (zero_mj, None),
        "quantisation": (steps_mj, None),
        "sampling": (sampling_w * length_ms, freedom),
        "edges": (block.edges_u_mj, None),
        "tail": (math.hypot(block.tail.u_mj, block.tail.idle_u_mj), None),
    }
    if idle is not None:
        terms["idle_sampling"] = (
            math.hypot(idle.u_w, idle.stretch_u_w(timed.length_ns)) * length_ms,
            idle.freedom,
        )
        terms["idle_quantisation"] = (
            None if idle.quantisation_u_w is None else idle.quantisation_u_w * length_ms,
            None,
        )
        terms["idle_drift"] = (None if idle.drift_u_w is None else idle.drift_u_w * length_ms, None)
    return terms


def sampling(
    curve: Curve, window: Window, spacing_ns: float, breaks_ns: Times | None
) -> tuple[float, float | None]:
    """Return the standard uncertainty of the mean power, W, and its degrees of freedom.

    They are from differences of neighbouring blocks.

    Slow changes hardly count, because the lines between readings follow them. A reading next to a
    gap has more weight in the trapezoids, so it has more weight here. After a random pause a sensor
    with its own clock sees another part of each query.
    """
    inside = curve.inside(window)
    powers_w, times_ns = curve.apart_w[inside], curve.times_ns[inside]
    n = powers_w.size
    if n < 2 * FEWEST_IN_BLOCK:
        return float(np.std(powers_w, ddof=1)) if n > 1 else 0.0, 1.0
    in_block = max(FEWEST_IN_BLOCK, FEWEST_NEW_IN_BLOCK * n * spacing_ns / window.length_ns)
    bounds = (
        np.linspace(
            0,
            n,
            int(max(2, min(FOLLOWED_BLOCKS if curve.follows_queries else BLOCKS, n // in_block)))
            + 1,
        )
        .round()
        .astype(int)
    )
    if breaks_ns is not None and not curve.follows_queries:
        at_breaks = [0]
        for index in np.searchsorted(times_ns, breaks_ns).tolist():
            if min(index - at_breaks[-1], n - index) >= max(in_block, n / FOLLOWED_BLOCKS):
                at_breaks.append(index)
        bounds = np.array([*at_breaks, n]) if len(at_breaks) >= FEWEST_BREAKS else bounds
    sizes = np.diff(bounds)
    means_w = np.add.reduceat(powers_w, bounds[:-1]) / sizes
    variance = float(np.mean(np.diff(means_w) ** 2)) / 2 * float(np.sum(sizes**2)) / n
    nodes_ns = np.concatenate(([window.start_ns], times_ns, [window.end_ns])).astype(np.float64)
    share = float(np.sum(((nodes_ns[2:] - nodes_ns[:-2]) / 2) ** 2)) / float(window.length_ns) ** 2
    # Source: von Neumann's mean square successive difference; its variance among independent normal
    # values.
    blocks = sizes.size
    return math.sqrt(variance * share), max(1.0, 2 * (blocks - 1) ** 2 / (3 * blocks - 4))


def gross_u_mj(budget: Budget) -> float | None:
    """Return the expanded uncertainty of the gross energy; None if a term is unknown."""
    return expanded(term for name, term in budget.items() if not name.startswith("idle_"))


def net_u_mj(budget: Budget, net_ratio: float) -> float | None:
    """Return the expanded uncertainty of the net energy.

    `net_ratio` is its ratio to the gross energy. The offset cancels.
    """
    gain, freedom = budget["gain"]
    stretched: Term = (None if gain is None else gain * net_ratio, freedom)
    return expanded(
        [stretched, *(term for name, term in budget.items() if name not in {"gain", "offset"})]
    )


def unknown_reason(budget: Budget) -> str | None:
    """Return why there is no expanded uncertainty, with the remedy; None if there is one."""
    unknown = {name for name, (u_mj, _) in budget.items() if u_mj is None}
    return "; ".join(dict.fromkeys(why for name, why in UNKNOWN.items() if name in unknown)) or None


def expanded(terms: Iterable[Term]) -> float | None:
    """Return k times the root of the sum of the squares of independent terms.

    None if a term is unknown.
    """
    pairs = list(terms)
    known_terms = [(u, freedom) for u, freedom in pairs if u is not None]
    if len(known_terms) < len(pairs):
        return None
    total = math.fsum(u**2 for u, _ in known_terms)
    # Source: GUM G.4.1.
    each = math.fsum(u**4 / freedom for u, freedom in known_terms if freedom is not None)
    freedom = total**2 / each if each > 0 else ENOUGH_FREEDOM
    k = 2.0 if freedom >= ENOUGH_FREEDOM else student_quantile(CONFIDENCE, freedom)
    return k * math.sqrt(total)
