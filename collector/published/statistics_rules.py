"""Rules of statistics: an accuracy over enough items and within its metric, percentiles that the count supports and that are in order."""

import re

from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.engine.scenarios.latency_statistics import PERCENTILES, queries_needed
from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import FEWEST_IMAGES, PublishedRow, too_few_items
from edgemeter.collector.published.rule import JudgedRow, PublishedRules, finding, largest, number, smallest

# Of fewer items an accuracy says nothing; 30, as AIME has, are little.
HANDFUL = 10
# Metrics that count right answers over items, and are no mean of shares over classes, pixels or words.
_COUNTED = re.compile(r"\b(?:acc|accuracy|top ?\d|exact match|em|pass@1)\b")
_NOT_COUNTED = re.compile(r"\b(?:pixel|token|word|character|balanced|mean|macro|class|drop|loss|difference|error)\b")
# Metrics that are at most 1 by definition; a word error rate, CIDEr, PSNR and FID are not.
_AT_MOST_ONE = re.compile(r"\b(?:m?ap(?:\d\w*)?|precision|recall|f1|m?iou|dice|ssim|rouge\w*|auc|auroc)\b")
_LEVEL_OF_FIGURE = {"latency-p90": "p90", "latency-p99": "p99", "latency-mean": "mean"}
_ORDER = ("min", "median", "p90", "p95", "p99", "p99.9", "max")

STATISTICS_RULES = PublishedRules()


@STATISTICS_RULES.rule(
    f"an accuracy is over at least {FEWEST_IMAGES} items, and their number is stated",
    "over a few items chance decides: AP 0.61 over 4 images was published for a model whose AP is 0.40",
)
def _too_few_items(judged: JudgedRow) -> Evidence | None:
    row = judged.row
    if row.figure != "accuracy":
        return None
    value, items = row.canonical[0], row.images
    if items is None:
        return finding("unclear", f"the number of items behind the accuracy of {value:.3g} is not stated: over a few, chance decides")
    if value > 1 and _is_counted(row):
        return None
    bounds = f"{value:.3g} over {items:,} items"
    if _is_counted(row):
        low, high = wilson_interval(value * items, items)
        bounds = f"{bounds} has 95% bounds of {low:.2g} to {high:.2g} by chance alone"
    if too_few_items(row):
        needs = f"{bounds}, and an accuracy needs at least {FEWEST_IMAGES} items"
        if items < HANDFUL:
            return finding("impossible", f"{needs}: so few say nothing about the model", items, FEWEST_IMAGES, "items")
        return finding("unclear", f"{needs}: so few say little about the model", items, FEWEST_IMAGES, "items")
    return finding("plausible", f"{bounds}: at least {FEWEST_IMAGES} items, enough to judge the model", items, FEWEST_IMAGES, "items")


@STATISTICS_RULES.rule("an accuracy lies within the range of its metric", "a share, mAP, IoU or F1 is at most 1: more means another unit")
def _outside_metric(judged: JudgedRow) -> Evidence | None:
    row = judged.row
    if row.figure != "accuracy" or row.canonical[0] <= 1:
        return None
    sums = f"{row.accuracy_metric or 'an accuracy'} of {row.value:g} {row.unit} = {number(row.canonical[0])}"
    if row.accuracy_metric is None:
        return finding("unclear", f"{sums}: possible only of a metric that may be above 1, and none is stated", row.canonical[0], 1.0)
    if not _is_counted(row) and not _AT_MOST_ONE.search(_metric(row)):
        return None
    return finding("impossible", f"{sums}, and this metric is at most 1: impossible", row.canonical[0], 1.0)


def _metric(row: PublishedRow) -> str:
    return re.sub(r"[_-]", " ", row.accuracy_metric or "").casefold()


def _is_counted(row: PublishedRow) -> bool:
    return _COUNTED.search(_metric(row)) is not None and not _NOT_COUNTED.search(_metric(row))


@STATISTICS_RULES.rule(
    "a percentile from p90 up is over as many queries as own runs need for it",
    "of fewer queries few or none lie beyond it: at a confidence of 0.99 a p90 needs 64 queries, a p99 662",
)
def _unsupported_percentile(judged: JudgedRow) -> Evidence | None:
    level = _level(judged.row)
    share = PERCENTILES.get((level or "").replace(".", "_"))
    if level is None or share is None:
        return None
    required, count = queries_needed(share), judged.row.count
    if count is None:
        return finding("unclear", f"a {level} needs {required:,} queries, and their number is not stated")
    if count >= required:
        return None
    beyond = round(count * (1 - share), 9)
    sums = (
        f"a {level} of {count:,} queries: {count:,} x {1 - share:.2g} = {number(beyond)} of them lie beyond it, and it needs {required:,}"
    )
    if beyond < 1:
        return finding("impossible", f"{sums}: not supported, as it is no more than the largest", count, required, "queries")
    return finding("unclear", f"{sums}: possible, but few support it", count, required, "queries")


@STATISTICS_RULES.rule(
    "within one case, min <= p50 <= p90 <= p95 <= p99 <= max and min <= mean <= max", "percentiles of one set of queries cannot cross"
)
def _percentiles_cross(judged: JudgedRow) -> Evidence | None:
    row, level = judged.row, _level(judged.row)
    for companion in judged.companions:
        other_level = _level(companion)
        if level is None or other_level is None or _base(companion) != _base(row):
            continue
        is_above = _is_below(level, other_level) and smallest(row) > largest(companion)
        if is_above or (_is_below(other_level, level) and smallest(companion) > largest(row)):
            value, limit, unit = row.canonical[0], companion.canonical[0], row.kind.unit
            sums = f"the {level} is {number(value)} {unit}, and the {other_level} of the same case {number(limit)} {unit}"
            return finding("impossible", f"{sums}: they cannot cross", value, limit, unit)
    return None


def _level(row: PublishedRow) -> str | None:
    """Return which statistic a row is of; None: not stated. A rate has percentiles in either direction, so that only its ends count."""
    level = _LEVEL_OF_FIGURE.get(row.figure) or row.statistic
    return level if row.kind.unit == "ms" or level in {"min", "mean", "median", "max"} else None


def _base(row: PublishedRow) -> str:
    return "latency" if row.figure.startswith("latency") else row.figure


def _is_below(level: str, other: str) -> bool:
    """Return whether the first statistic cannot be above the second, whatever the queries."""
    if "mean" in {level, other}:
        return level == "min" or other == "max"
    return level in _ORDER and other in _ORDER and _ORDER.index(level) < _ORDER.index(other)
