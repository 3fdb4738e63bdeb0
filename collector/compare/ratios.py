"""Ratios: a case's figures against those of its reference; a ratio is None where either has no figure or the two are not alike."""

import math
from dataclasses import dataclass

from edgemeter.collector.compare import interval
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import Summary

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Case / reference. Latency, memory and energy above 1 are worse than the reference, throughput above 1 is better.

    `p50_low` and `p50_high` are the extremes that the ranges over runs allow. `accuracy_difference` is case - reference in the metric's
    own unit. Energies only have a ratio when both were measured at the same scope.

    `*_interval` are 95 %: of latency and throughput over runs, days or devices; of energy with what the meters may be wrong by, unless one
    meter measured both; of accuracy over the images. None where there are too few runs or a bound is not known.
    """

    p50: float | None
    p50_low: float | None
    p50_high: float | None
    p90: float | None
    throughput: float | None
    peak_memory: float | None
    energy_gross: float | None
    energy_net: float | None
    accuracy_difference: float | None
    p50_interval: Bounds | None = None
    throughput_interval: Bounds | None = None
    energy_gross_interval: Bounds | None = None
    energy_net_interval: Bounds | None = None
    accuracy_interval: Bounds | None = None


def ratios(case: Summary, reference: Summary) -> Ratios:
    """Return the ratios of `case` to `reference`; of the reference to itself they are 1."""
    is_itself = case is reference
    p50 = _of_medians(case.p50_ms, reference.p50_ms)
    low, high = (p50, p50) if is_itself else _extremes(case.p50_ms, reference.p50_ms)
    comparable = same_scope(case, reference)
    return Ratios(
        p50=p50,
        p50_low=low,
        p50_high=high,
        p90=_of_medians(case.p90_ms, reference.p90_ms),
        throughput=_of_medians(case.throughput_per_s, reference.throughput_per_s),
        peak_memory=_of_medians(case.peak_mb, reference.peak_mb),
        energy_gross=_of_medians(case.gross_mj, reference.gross_mj) if comparable else None,
        energy_net=_of_medians(case.net_mj, reference.net_mj) if comparable else None,
        accuracy_difference=_accuracy_difference(case, reference),
        p50_interval=None if is_itself else _bounds(case.p50_ms, reference.p50_ms),
        throughput_interval=None if is_itself else _bounds(case.throughput_per_s, reference.throughput_per_s),
        energy_gross_interval=_energy_bounds(case, reference, "gross") if comparable and not is_itself else None,
        energy_net_interval=_energy_bounds(case, reference, "net") if comparable and not is_itself else None,
        accuracy_interval=None if is_itself else _accuracy_bounds(case, reference),
    )


def withheld(found: Ratios) -> Ratios:
    """Return the ratios of a case whose speed does not rank: of what it costs nothing, of its accuracy the difference."""
    accuracy = found.accuracy_difference, found.accuracy_interval
    return Ratios(None, None, None, None, None, None, None, None, accuracy[0], accuracy_interval=accuracy[1])


def same_scope(case: Summary, reference: Summary) -> bool:
    """Return whether both have an energy of the same scope and provenance."""
    own, other = case.energy, reference.energy
    return own is not None and other is not None and (own.scope, own.provenance) == (other.scope, other.provenance)


def is_one_meter(case: Summary, reference: Summary) -> bool:
    """Return whether one meter measured both: what it is wrong by then cancels in the ratio."""
    own, other = case.energy, reference.energy
    sides = (case.key.fleet, case.key.device), (reference.key.fleet, reference.key.device)
    return own is not None and other is not None and own.sensor == other.sensor and sides[0] == sides[1]


def _ratio(own: float, other: float) -> float | None:
    return own / other if own > 0 and other > 0 else None


def _of_medians(own: Spread | None, other: Spread | None) -> float | None:
    return _ratio(own.median, other.median) if own and other else None


def _extremes(own: Spread | None, other: Spread | None) -> tuple[float | None, float | None]:
    return (_ratio(own.low, other.high), _ratio(own.high, other.low)) if own and other else (None, None)


def _accuracy_difference(case: Summary, reference: Summary) -> float | None:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None:
        return None
    alike = (own.metric, own.images, own.dataset_sha256) == (other.metric, other.images, other.dataset_sha256)
    return own.value.median - other.value.median if alike else None


def _bounds(own: Spread | None, other: Spread | None) -> Bounds | None:
    sides = _plain(own), _plain(other)
    if own is None or other is None or sides[0] is None or sides[1] is None:
        return None
    return interval.of_ratio(own.median, sides[0], other.median, sides[1])


def _plain(found: Spread | None) -> Bounds | None:
    return (found.interval.low, found.interval.high) if found and found.interval else None


def _energy_bounds(case: Summary, reference: Summary, which: str) -> Bounds | None:
    own, other = (_energy_side(side, which, with_meter=not is_one_meter(case, reference)) for side in (case, reference))
    return None if own is None or other is None else interval.of_ratio(own[0], own[1], other[0], other[1])


def _energy_side(side: Summary, which: str, *, with_meter: bool) -> tuple[float, Bounds] | None:
    """Return the energy and its bounds; an uncertainty that is not known leaves none."""
    if side.energy is None:
        return None
    found = side.energy.gross_mj if which == "gross" else side.energy.net_mj
    u_mj = side.energy.gross_u_mj if which == "gross" else side.energy.net_u_mj
    bounds = _plain(found)
    if found is None or bounds is None or not with_meter:
        return None if found is None or bounds is None else (found.median, bounds)
    return None if u_mj is None else (found.median, interval.widened(bounds, found.median, u_mj))


def _accuracy_bounds(case: Summary, reference: Summary) -> Bounds | None:
    """Return the bounds of the difference. Both saw the same images, so these are wider than they had to be."""
    difference, own, other = _accuracy_difference(case, reference), case.accuracy, reference.accuracy
    if difference is None or own is None or other is None:
        return None
    if own.low is None or own.high is None or other.low is None or other.high is None:
        return None
    below = math.hypot(max(0.0, own.value.median - own.low), max(0.0, other.high - other.value.median))
    above = math.hypot(max(0.0, own.high - own.value.median), max(0.0, other.value.median - other.low))
    return difference - below, difference + above
