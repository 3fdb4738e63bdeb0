"""Rules of statistics: an accuracy over enough items and within its metric, percentiles that the count supports and that are in order."""

from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.engine.scenarios.latency_statistics import PERCENTILES, queries_needed
from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import FEWEST_IMAGES, PublishedRow, too_few_items
from edgemeter.collector.published.rule import JudgedRow, PublishedRules, finding, largest, number, smallest

# Metrics that may be above 1, or are errors: the share of words that are wrong counts inserted ones too.
_UNBOUNDED = ("wer", "cer", "perplexity", "ppl", "rmse", "mae", "mse", "error", "loss", "bpc", "bits per", "bleu", "score")
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
    bounds = f"{value:.3g} over {items:,} items"
    if _is_share(row):
        low, high = wilson_interval(min(value, 1.0) * items, items)
        bounds = f"{bounds} has 95% bounds of {low:.2g} to {high:.2g} by chance alone"
    if too_few_items(row):
        sentence = f"{bounds}, and an accuracy needs at least {FEWEST_IMAGES} items: so few say nothing about the model"
        return finding("impossible", sentence, items, FEWEST_IMAGES, "items")
    return finding("plausible", f"{bounds}: at least {FEWEST_IMAGES} items, enough to judge the model", items, FEWEST_IMAGES, "items")


@STATISTICS_RULES.rule("an accuracy lies within the range of its metric", "a share of right answers is at most 1: more means another unit")
def _outside_metric(judged: JudgedRow) -> Evidence | None:
    row = judged.row
    if row.figure != "accuracy" or row.canonical[0] <= 1 or not _is_share(row):
        return None
    name = row.accuracy_metric or "an accuracy"
    sentence = f"{name} of {row.value:g} {row.unit} = {number(row.canonical[0])}, and a share of right answers is at most 1: impossible"
    return finding("impossible", sentence, row.canonical[0], 1.0)


def _is_share(row: PublishedRow) -> bool:
    return not any(word in (row.accuracy_metric or "").casefold() for word in _UNBOUNDED)


@STATISTICS_RULES.rule(
    "a percentile from p90 up is over as many queries as own runs need for it",
    "of fewer queries too few lie beyond it: at a confidence of 0.99 a p90 needs 64 queries, a p99 662",
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
    beyond = f"{count:,} x {1 - share:.2g} = {number(count * (1 - share))} of them lie beyond it"
    sentence = f"a {level} of {count:,} queries: {beyond}, and it needs {required:,}: not supported"
    return finding("impossible", sentence, count, required, "queries")


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
