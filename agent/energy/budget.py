"""The uncertainty budget of an energy: every term by itself, as a standard uncertainty (k = 1) in mJ per inference.

After the GUM: independent terms add in squares, and the expanded uncertainty is twice their root (k = 2). A term that nobody
knows makes the whole unknown: an unknown uncertainty is not zero.
"""

import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from edgemeter.agent.energy.curve import NS_PER_MS, Curve, mean_w
from edgemeter.agent.engine.job import Window
from edgemeter.agent.power import Description
from edgemeter.agent.records import UncertaintyTerm

COVERAGE = 2.0
# An idle stretch is cut into so many parts; how their means scatter says how well its own mean is known.
IDLE_PARTS = 10


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle power: the mean of the stretches before and after, each None where there was none, and its standard uncertainties, W.

    `drift_u_w` is None when only one side is known: how far the power moved during the run is then not known.
    """

    before_w: float | None
    after_w: float | None
    mean_w: float
    sampling_u_w: float
    quantisation_u_w: float | None
    drift_u_w: float | None

    @property
    def u_w(self) -> float:
        """Return the standard uncertainty of the mean from all terms that are known."""
        return math.hypot(self.sampling_u_w, self.quantisation_u_w or 0.0, self.drift_u_w or 0.0)


def idle(curve: Curve, before: Window | None, after: Window | None) -> Idle | None:
    """Return the idle power out of the stretches around a run; None without any."""
    stretches = [window for window in (before, after) if window is not None]
    if not stretches:
        return None
    means = [mean_w(curve, window) for window in stretches]
    steps = [curve.quantisation_u_w(window) for window in stretches]
    known = [step for step in steps if step is not None]
    return Idle(
        before_w=means[0] if before else None,
        after_w=means[-1] if after else None,
        mean_w=statistics.fmean(means),
        sampling_u_w=math.hypot(*(_scatter(curve, window) for window in stretches)) / len(stretches),
        quantisation_u_w=max(known) if len(known) == len(steps) else None,
        # Source: a value that lies anywhere between the two, GUM 4.3.7 (rectangular).
        drift_u_w=abs(means[1] - means[0]) / math.sqrt(12) if len(means) == 2 else None,
    )


def terms(curve: Curve, description: Description, timed: Window, inferences: int, idling: Idle | None) -> tuple[UncertaintyTerm, ...]:
    """Return the budget of the gross energy per inference; the terms named `idle_*` enter the net energy only."""
    per_w = (timed.end_ns - timed.start_ns) / NS_PER_MS / inferences
    gain, resolution_w = description.gain_u_ratio, description.resolution_w
    steps = (curve.step_w(timed.start_ns), curve.step_w(timed.end_ns))
    watts = {
        "gain": None if gain is None else gain * abs(mean_w(curve, timed)),
        # A converter may be off by a step either way, all the time.
        "offset": None if resolution_w is None else resolution_w / math.sqrt(3),
        "quantisation": curve.quantisation_u_w(timed),
        "sampling": curve.sampling_u_w(timed),
        "edges": math.hypot(*steps) * curve.spacing_ns / math.sqrt(12) / (timed.end_ns - timed.start_ns),
    }
    if idling is not None:
        watts["idle_sampling"] = idling.sampling_u_w
        watts["idle_quantisation"] = idling.quantisation_u_w
        watts["idle_drift"] = idling.drift_u_w
    return tuple(UncertaintyTerm(term=term, u_mj=None if u is None else u * per_w) for term, u in watts.items())


def gross_u_mj(budget: Iterable[UncertaintyTerm]) -> float | None:
    """Return the expanded uncertainty of the gross energy."""
    return _expanded(term.u_mj for term in budget if not term.term.startswith("idle_"))


def net_u_mj(budget: Iterable[UncertaintyTerm], gross_mj: float, net_mj: float) -> float | None:
    """Return the expanded uncertainty of the net energy: the gain acts on the difference only, and the offset cancels."""
    share = abs(net_mj / gross_mj) if gross_mj else 0.0
    known = {term.term: term.u_mj for term in budget if term.term != "offset"}
    gain = known.pop("gain")
    return _expanded([None if gain is None else gain * share, *known.values()])


def _scatter(curve: Curve, window: Window) -> float:
    """Return the standard uncertainty of an idle stretch's mean: readings follow each other too closely to count one by one."""
    width = (window.end_ns - window.start_ns) / IDLE_PARTS
    edges = [round(window.start_ns + place * width) for place in range(IDLE_PARTS + 1)]
    means = [mean_w(curve, Window(begin, end)) for begin, end in itertools.pairwise(edges)]
    return statistics.stdev(means) / math.sqrt(IDLE_PARTS)


def _expanded(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    if any(part is None for part in known):
        return None
    return COVERAGE * math.hypot(*(part for part in known if part is not None))
