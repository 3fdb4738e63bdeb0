"""Copies: whether the raw samples of two bundles are one measurement, as they are or disguised; each measurement counts once.

Found are series that are equal, or stretches of them (the beginning cut off, a part taken), also multiplied and shifted by constants; and
all values in another order, also multiplied; and latencies of which some were left out in another order. Not found is what hides every
digit: noise added to each value beyond the resolution of the clock, other functions of them, values in another order of which some are
left out and which are multiplied, and samples that were never measured. Series with hardly any information prove nothing: fewer than
about 20 values, or a sensor with few levels.

Two runs that are honest never agree so closely: every test asks for many values that agree to the resolution of the clock or sensor.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord

Values = NDArray[Any]
Floats = NDArray[np.float64]
# Series that no two runs have alike: not when queries were due, and not how many tokens there were, which are the same by intent.
MEASURED = ("latency", "preprocess", "postprocess", "first_token", "token")
SENSORS = ("power.", "energy.")

# An equal series proves a copy if its values hold so many bits of chance.
FEWEST_BITS = 64.0
# A stretch is so many values around its least, with so many different ones and so many turns up and down; of a series so many are kept.
REACH, FEWEST_LEVELS, FEWEST_TURNS, STRETCHES = 12, 12, 6, 256
# So closely, of the range of a stretch, must all its values follow those of another; never looser than the second.
CLOSELY, LOOSEST = 1e-6, 1e-3
# Ordered values are compared at so many ranks, if their spread is so many times beyond chance (4 / sqrt(n)) and resolution.
RANKS, FEWEST_DISTINCT, BEYOND = 256, 64, 4.0
# Of the largest latencies of a bundle, so many must be among so many of the other's, where at most this share of what can be is there.
LARGEST, AMONG, FULLEST_RATIO = 16, 256, 0.25


@dataclass(frozen=True, slots=True)
class SeriesTraits:
    """By what a series is recognised; each is empty or None where the series holds too little for it.

    `stretches` are values float64 [n, 25] by the hash of their order; `ranked` is float64 [256], logarithms of values at ranks over their
    median, with `tolerance`; `largest` are the largest distinct values, and `rare` whether it means anything that two runs share them.
    """

    name: str
    count: int
    digest: bytes | None
    stretches: dict[int, Floats]
    is_whole: bool
    ranked: Floats | None
    tolerance: float
    largest: tuple[int, ...]
    rare: bool


class KnownMeasurements:
    """The measurements so far, each with a name; finds those that a run copies."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, bytes], str] = {}
        self._stretches: dict[tuple[str, int], list[tuple[str, Floats]]] = defaultdict(list)
        self._ranked: dict[tuple[str, int], list[tuple[str, SeriesTraits]]] = defaultdict(list)
        self._latencies: list[tuple[str, SeriesTraits]] = []

    def original(self, series: Sequence[SeriesTraits]) -> tuple[str, str] | None:
        """Return the name of the measurement whose samples a run has, and how they were copied; None if they are its own."""
        return next((copied for traits in series if (copied := self._copied(traits))), None)

    def add(self, name: str, series: Sequence[SeriesTraits]) -> None:
        """Remember a measurement."""
        for traits in series:
            if traits.digest is not None:
                self._digests.setdefault((kind_of(traits.name), traits.digest), name)
            for order, values in traits.stretches.items():
                self._stretches[kind_of(traits.name), order].append((name, values))
            if traits.ranked is not None:
                self._ranked[kind_of(traits.name), traits.count].append((name, traits))
            if traits.largest:
                self._latencies.append((name, traits))

    def _copied(self, traits: SeriesTraits) -> tuple[str, str] | None:
        kind = kind_of(traits.name)
        if traits.digest is not None and (name := self._digests.get((kind, traits.digest))):
            return name, f"the same {traits.name} samples"
        for order, values in traits.stretches.items():
            for name, earlier_values in self._stretches.get((kind, order), ()):
                if (factor := _factor(values, earlier_values, is_whole=traits.is_whole)) is not None:
                    times = "" if math.isclose(factor, 1.0, rel_tol=1e-6) else f", times {factor:.4g}"
                    return name, f"a stretch of the same {traits.name} samples{times}"
        for name, other in self._ranked.get((kind, traits.count), ()):
            if traits.ranked is not None and other.ranked is not None:
                tolerance = traits.tolerance + other.tolerance
                if np.abs(traits.ranked - other.ranked).max() <= tolerance:
                    return name, f"the same {traits.name} samples in another order, or multiplied"
        for name, other in self._latencies if traits.largest else ():
            few, many = (traits, other) if traits.count <= other.count else (other, traits)
            if many.rare and set(few.largest[:LARGEST]) <= set(many.largest):
                return name, f"some of the same {traits.name} samples in another order"
        return None


def kind_of(name: str) -> str:
    """Return with which series one of this name is compared: a sensor may be called anything."""
    return next((kind for kind in SENSORS if name.startswith(kind)), name)


def traits_of(run: RunRecord) -> Iterator[SeriesTraits]:
    """Yield the traits of each measured series of a run."""
    raw = {series.name: samples.unpack(series) for series in run.samples}
    for name, values in raw.items():
        if name in MEASURED:
            yield _traits(name, values)
        elif name.startswith(SENSORS):
            sensor = name.partition(".")[2]
            at_ns = raw.get(f"power_at.{sensor}")
            # The idle time between two runs may belong to both.
            timed = values if at_ns is None or at_ns.size != values.size else values[at_ns >= 0]
            yield _traits(name, np.diff(timed) if name.startswith("energy.") else timed)


def _traits(name: str, values: Values) -> SeriesTraits:
    ordered, counts = np.unique(values, return_counts=True)
    is_whole = values.dtype.kind == "i"
    bits = float(-(counts * np.log2(counts / max(values.size, 1))).sum())
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest() if bits >= FEWEST_BITS else None
    ranked, tolerance = _ranked(values, ordered)
    largest, rare = _largest(ordered) if name == "latency" and is_whole else ((), False)
    return SeriesTraits(name, values.size, digest, _stretches(values), is_whole, ranked, tolerance, largest, rare)


def _stretches(values: Values) -> dict[int, Floats]:
    """Return stretches that are found again in a part of the series: those around a value that is the least within reach."""
    width = 2 * REACH + 1
    if values.size < width:
        return {}
    middle = values[REACH:-REACH]
    is_least = np.ones(middle.size, dtype=np.bool_)
    for distance in range(1, REACH + 1):
        is_least &= middle < values[REACH - distance : values.size - REACH - distance]
        is_least &= middle <= values[REACH + distance : values.size - REACH + distance]
    windows = sliding_window_view(values, width)[is_least].astype(np.float64)
    turns = np.count_nonzero(np.diff(np.sign(np.diff(windows, axis=1)), axis=1), axis=1)
    order = np.argsort(windows, axis=1, kind="stable")
    levels = np.cumsum(np.diff(np.take_along_axis(windows, order, axis=1), axis=1, prepend=-np.inf) > 0, axis=1, dtype=np.uint64)
    places = np.empty_like(levels)
    np.put_along_axis(places, order, levels, axis=1)
    keys = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64)
    hashes = (places * keys).sum(axis=1, dtype=np.uint64)
    telling = np.flatnonzero((levels[:, -1] >= FEWEST_LEVELS) & (turns >= FEWEST_TURNS))
    # By the hash, so that a part of the series keeps the same ones.
    lowest_hashes = telling[np.argsort(hashes[telling], kind="stable")][:STRETCHES]
    return dict(zip(hashes[lowest_hashes].tolist(), windows[lowest_hashes], strict=True))


def _factor(values: Floats, earlier_values: Floats, *, is_whole: bool) -> float | None:
    """Return the factor by which `values` follow `earlier_values`, but for a constant; None where they do not to the last digit."""
    centred, other_centred = values - values.mean(), earlier_values - earlier_values.mean()
    factor = float(centred @ other_centred / (other_centred @ other_centred))
    span = float(np.ptp(values))
    # Whole numbers were rounded twice.
    tolerance = CLOSELY * span + ((1 + abs(factor)) if is_whole else 0.0)
    if tolerance > LOOSEST * span or np.abs(centred - factor * other_centred).max() > tolerance:
        return None
    return factor


def _ranked(values: Values, ordered: Values) -> tuple[Floats | None, float]:
    """Return the values at ranks over their median, and how far rounding moves them."""
    if ordered.size < FEWEST_DISTINCT or values.size < RANKS or ordered[0] <= 0:
        return None, 0.0
    tolerance = 2 * float(np.diff(ordered).min()) / float(ordered[0]) if values.dtype.kind == "i" else 1e-9
    places = np.linspace(0, values.size - 1, RANKS).round().astype(np.intp)
    ranked = np.log(np.sort(values)[places] / np.median(values))
    spread = float(ranked[int(0.9 * RANKS)] - ranked[int(0.1 * RANKS)])
    return (ranked, tolerance) if spread >= BEYOND * math.sqrt(values.size) * tolerance else (None, 0.0)


def _largest(ordered: Values) -> tuple[tuple[int, ...], bool]:
    if ordered.size < FEWEST_DISTINCT:
        return (), False
    among = ordered[-AMONG:]
    room = (int(among[-1]) - int(among[0])) / max(int(np.diff(ordered).min()), 1) + 1
    return tuple(reversed(among.tolist())), among.size / room <= FULLEST_RATIO


def originals(runs: Sequence[tuple[str, RunRecord]]) -> dict[str, tuple[str, str]]:
    """Return for each run (by name) that copies an earlier one, which and how; the first of several is the original."""
    measurements = KnownMeasurements()
    copied: dict[str, tuple[str, str]] = {}
    for name, run in runs:
        series = list(traits_of(run))
        if (original := measurements.original(series)) is not None:
            copied[name] = original
        else:
            measurements.add(name, series)
    return copied
