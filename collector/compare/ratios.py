"""Ratios: a case's figures against those of its reference; a ratio is None where either has no figure or the two are not alike."""

from dataclasses import dataclass

from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import Summary


@dataclass(frozen=True, slots=True)
class Ratios:
    """Case / reference. Latency, memory and energy above 1 are worse than the reference, throughput above 1 is better.

    `p50_low` and `p50_high` are the extremes that the ranges over runs allow. `accuracy_difference` is case - reference in the metric's
    own unit. Energies only have a ratio when both were measured at the same scope.
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


def ratios(case: Summary, reference: Summary) -> Ratios:
    """Return the ratios of `case` to `reference`; of the reference to itself they are 1."""
    p50 = _of_medians(case.p50_ms, reference.p50_ms)
    low, high = (p50, p50) if case is reference else _extremes(case.p50_ms, reference.p50_ms)
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
    )


def withheld(found: Ratios) -> Ratios:
    """Return the ratios of a case whose speed does not rank: of what it costs nothing, of its accuracy the difference."""
    return Ratios(None, None, None, None, None, None, None, None, found.accuracy_difference)


def same_scope(case: Summary, reference: Summary) -> bool:
    """Return whether both have an energy of the same scope and provenance."""
    own, other = case.energy, reference.energy
    return own is not None and other is not None and (own.scope, own.provenance) == (other.scope, other.provenance)


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
