"""The review as JSON and as plain text."""

from collections.abc import Sequence
from typing import Any

import msgspec

from edgemeter.collector.compare.ratios import Bounds
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.review.gate import Finding, is_broken
from edgemeter.collector.review.markdown import worst
from edgemeter.collector.review.review import Pair, Review


def to_json(review: Review, findings: Sequence[Finding]) -> str:
    """Return `{"baseline", "new", "pairs": [...], "limits": [...], "is_broken", "left_out": [...]}` as text."""
    document = {
        "baseline": review.baseline,
        "new": review.new,
        "pairs": [_pair(pair) for pair in review.pairs],
        "limits": [{"limit": one.limit.text, "case": one.case, "outcome": one.outcome, "words": one.words} for one in findings],
        "is_broken": is_broken(findings),
        "left_out": [{"side": left.side, "what": left.what, "reason": left.reason, "is_lost": left.is_lost} for left in review.left_out],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def lines(review: Review, findings: Sequence[Finding]) -> list[str]:
    """Return the review as lines for a terminal."""
    found: list[str] = []
    for pair in review.pairs:
        found.append(f"{pair.name}: {worst(pair)}")
        judged = pair.judgements
        said = {"latency": judged.latency, "energy": judged.energy, "accuracy": judged.accuracy}
        found += [f"    {name}: {one.words}" for name, one in said.items() if one is not None]
        if pair.changed:
            found.append(f"    changed: {', '.join(pair.changed)}")
    found += [f"limit {one.limit.text} {one.outcome}: {one.case + ': ' if one.case else ''}{one.words}" for one in findings]
    found += [f"left out: {left.what} ({left.side}): {left.reason}" for left in review.left_out]
    return found


def _pair(pair: Pair) -> dict[str, Any]:
    judged = pair.judgements
    ratios = pair.ratios
    return {
        "case": pair.name,
        "state": worst(pair),
        "changed": list(pair.changed),
        "baseline": _side(pair.baseline),
        "new": _side(pair.case),
        "latency_p50_ratio": _ratio(ratios.p50, ratios.p50_interval),
        "throughput_ratio": _ratio(ratios.throughput, ratios.throughput_interval),
        "energy_gross_ratio": _ratio(ratios.energy_gross, ratios.energy_gross_interval),
        "memory_peak_ratio": _ratio(ratios.peak_memory, None),
        "accuracy_difference": _ratio(ratios.accuracy_difference, ratios.accuracy_interval),
        "verdicts": {name: one.words for name in ("latency", "throughput", "energy", "accuracy") if (one := getattr(judged, name))},
    }


def _side(case: Summary) -> dict[str, Any]:
    return {
        "latency_p50_ms": median_of(case.p50_ms),
        "throughput_per_s": case.throughput_per_s.median,
        "energy_gross_mj": median_of(case.gross_mj),
        "memory_peak_mb": median_of(case.peak_mb),
        "accuracy_value": median_of(case.accuracy_value),
        "verdict": case.verdict,
        "run_ids": list(case.around.run_ids),
    }


def _ratio(value: float | None, bounds: Bounds | None) -> dict[str, float | None]:
    return {"value": value, "low": bounds[0] if bounds else None, "high": bounds[1] if bounds else None}
