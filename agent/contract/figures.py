"""The table of figures: every number that a view shows of a run, each declared once and whole.

An entry says what a figure is called, its unit, which way is better, where it stands in the record, its bounds or uncertainty, what must be
equal for two values to be of one kind, how the trend follows it, and in which views it appears. The ledger's index, the comparison (table,
matrix, sentence), the trend, the page, InfluxDB, exports, options and the reference pages are loops over it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from edgemeter.agent.base.figures import accuracy, plain_digits, share, significant, span, times
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.pooled_misses import pooled_misses
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.together_matrix import slow_down

# run: the table of `edgemeter run`; compare: JSON and CSV of a comparison; terminal: its table; matrix: `--figure`; cases: the page's table
# of cases; runs: its lists of runs; chart: its charts over time; references: their list; influx: InfluxDB
# with `--influx-fields figures`; csv: exports; index: kept of every run although no list or chart shows it.
View = Literal[
    "run", "compare", "terminal", "matrix", "cases", "runs", "chart", "references", "influx", "csv",
    "index",
]  # fmt: skip
EVERY_VIEW: frozenset[View] = frozenset(get_args(View))
# The group of the record's provenance that a figure belongs to; figures of `conditions` are facts about the machine.
Group = Literal[
    "latency", "throughput", "generation", "preprocess", "postprocess", "cold_start", "memory", "accuracy", "energy", "conditions"
]
# What the group of a figure's provenance is called in the record, where that is another.
_PROVENANCE_GROUP: dict[Group, str] = {"generation": "latency"}
Better = Literal["higher", "lower", "by its metric"]
# A value with its 95% bounds, as far as there are any.
OverRuns = tuple[float, tuple[float, float] | None] | None
# The ends of names that are units: what says more of a figure comes before them.
_UNIT_ENDS = ("_per_s", "_ms", "_s", "_mj", "_mb", "_w", "_c", "_ratio")


@dataclass(frozen=True, slots=True)
class TrendRule:
    """How the trend follows a figure, as the metric `name`.

    `matters` is the smallest difference that matters, on the scale: per cent, or points. `floor` is the least that days scatter. Of an
    accuracy `is_error` says whether those are followed whose metric has the lower value as the better one.
    """

    name: str
    scale: Literal["log", "points", "share"] = "log"
    matters: float = 3.0
    floor: float = 0.05
    title: str = ""
    is_error: bool | None = None
    only_valid: bool = True
    follows_temperature: bool = True
    is_default: bool = False


@dataclass(frozen=True)
class Figure:
    """One figure of a run.

    `path` is where it stands in the record, `of` what works it out from the fields `reads` where it is not in the record as such. `name` is
    its name in InfluxDB and exports, `column` in a comparison, `key` in the index and on the page, `choice` in options. `low` and `high`
    are the fields of its 95% bounds, `u` that of its expanded uncertainty, `k` that of its coverage factor. `over_runs` is the value of
    several runs with its bounds, of a share or a count, which may be 0: of others that is their median. `heading` stands above a
    column, which a narrow terminal drops the sooner the higher its `rank`; 0 is never dropped. `why_absent` is said where the record gives
    no reason. A comparison calls it `lower` or `higher`, and a ratio so many `times`. What `is_of_some` runs only has no column in a page's
    table where none has it.
    """

    title: str
    heading: str
    unit: str
    group: Group
    better: Better | None
    path: str = ""
    of: Callable[[RunRecord], float | bool | None] | None = None
    reads: tuple[str, ...] = ()
    name: str = ""
    column: str = ""
    key: str = ""
    choice: str = ""
    low: str = ""
    high: str = ""
    u: str = ""
    k: str = ""
    trends: tuple[TrendRule, ...] = ()
    views: frozenset[View] = EVERY_VIEW
    needs_all: bool = False
    is_text_model_only: bool = False
    is_truth: bool = False
    has_spread: bool = True
    always: bool = False
    is_of_some: bool = False
    rank: int = 4
    over_runs: Callable[[Sequence[RunRecord]], OverRuns] | None = None
    why_absent: str = "not recorded"
    lower: str = "lower"
    higher: str = "higher"
    times: str = ""
    shown: Callable[[float | None], str] = field(default=significant)

    def __post_init__(self) -> None:
        name = self.name or self.path.replace(".", "_")
        defaults = {
            "name": name, "column": name, "key": self.column or name, "choice": self.column or name, "times": f"times the {self.title}",
        }  # fmt: skip
        for attribute, default in defaults.items():
            if not getattr(self, attribute):
                object.__setattr__(self, attribute, default)

    @cached_property
    def value(self) -> Callable[[RunRecord], Any]:
        """The function that reads the figure of a run; it returns None where the run has none, whatever its provenance."""
        return self.of or reader(self.path)

    @cached_property
    def bounds(self) -> Callable[[RunRecord], tuple[float, float] | None]:
        """The function that reads the figure's 95% bounds; of an uncertainty: the value minus and plus it."""
        value, low, high, u = self.value, reader(self.low), reader(self.high), reader(self.u)

        def bounds_of(run: RunRecord) -> tuple[float, float] | None:
            middle = value(run)
            if self.u and middle is not None and (expanded := u(run)) is not None:
                return middle - expanded, middle + expanded
            ends = low(run), high(run)
            return None if middle is None or ends[0] is None or ends[1] is None else ends

        return bounds_of

    @cached_property
    def coverage(self) -> Callable[[RunRecord], float]:
        """The function that reads how many standard deviations (k) the figure's bounds are from its value."""
        factor = reader(self.k)
        return (lambda run: factor(run) or USUAL_K) if self.u else lambda _: NORMAL_95

    def table_text(self, value: float | None) -> str:
        """Return a value as the table of `edgemeter run` has it, with all its digits or in per cent; "-" where there is none."""
        return share(value) if self.is_share else plain_digits(value)

    def range_text(self, low: float, high: float) -> str:
        """Return a range of values, both ends written alike."""
        if not self.is_share:
            return span(low, high)
        return f"{share(low)} to {share(high)}" if low != high else share(low)

    @property
    def is_share(self) -> bool:
        """Whether it is a share, which may be 0: two of them are compared by their difference."""
        return self.shown is share

    @property
    def most(self) -> float:
        """The highest value that it can have."""
        return 1.0 if self.is_share else inf

    @property
    def stem(self) -> str:
        """Its name in a comparison without the unit: `latency_p50`."""
        return without_unit(self.column)

    @property
    def change_column(self) -> str:
        """Its name in a comparison against the reference's: `latency_p50_ratio`; of a share `missed_frames_difference`."""
        name = f"{self.stem}_{'difference' if self.is_share else 'ratio'}"
        return f"{name}_ratio" if name == self.column else name

    @property
    def has_bounds(self) -> bool:
        """Whether the record has bounds or an uncertainty of it."""
        return bool(self.low or self.u)

    @property
    def is_indexed(self) -> bool:
        """Whether the ledger's index keeps it of every run."""
        return bool(self.trends) or bool(self.views & {"runs", "chart", "index"})

    @property
    def provenance_group(self) -> str:
        """The name of its group in the record's `provenance`."""
        return _PROVENANCE_GROUP.get(self.group, self.group)

    @cached_property
    def further_provenance_groups(self) -> frozenset[str]:
        """The names of the other groups that it is worked out from: where one was not measured, neither was the figure."""
        roots = {path.partition(".")[0] for path in self.reads}
        groups: list[Group] = [group for group in get_args(Group) if group in roots]
        return frozenset(_PROVENANCE_GROUP.get(group, group) for group in groups) - {self.provenance_group, "conditions"}

    @property
    def heading_with_unit(self) -> str:
        """The title of a chart's axis: `Latency p50, ms`."""
        return f"{self.title[:1].upper()}{self.title[1:]}{f', {self.unit}' if self.unit else ''}"


USUAL_K = 2.0  # The coverage factor of an uncertainty that states none.
NORMAL_95 = 1.959964  # Bounds of 95% are so many standard deviations from the middle.


def reader(path: str) -> Callable[[RunRecord], Any]:
    """Return what reads `energy.gross_mj` of a run; None where a part on the way is None, and of an empty path."""
    if not path:
        return lambda _: None
    first, *deeper = map(attrgetter, path.split("."))
    if not deeper:
        return first

    def value(run: RunRecord) -> Any:
        part: Any = first(run)
        for read in deeper:
            if part is None:
                return None
            part = read(part)
        return part

    return value


def with_part(name: str, part: str) -> str:
    """Return a name with more said before its unit: `latency_p50_low_ms`."""
    end = next((end for end in _UNIT_ENDS if name.endswith(end)), "")
    return f"{name.removesuffix(end)}{part}{end}"


def without_unit(name: str) -> str:
    """Return a name without its unit: `latency_p50`."""
    return with_part(name, "|").partition("|")[0]


class FigureKind(NamedTuple):
    """The kind that two values must share to be compared: what was measured, and by what; `text` is the former in words."""

    text: str
    by: str = ""

    def __str__(self) -> str:
        return f"{self.text} by {self.by}" if self.by else self.text


LOWER_IS_BETTER = " (lower is better)"  # Stands in the kind of an accuracy whose lower value is the better one.


def kind_of(run: RunRecord, group: Group) -> FigureKind | None:
    """Return of what kind the figures of a group are, None where a run has none of the group, or the group has no kinds.

    Of an energy it is the scope, and the sensor with its provenance; of an accuracy metric, data and rule of comparing.
    """
    if group == "energy" and run.energy is not None:
        excludes = f" without {', '.join(run.energy.excludes)}" if run.energy.excludes else ""
        provenance = energy_provenance(run)
        return FigureKind(f"{run.energy.scope}{excludes}", run.energy.sensor + ("" if provenance == "measured" else f", {provenance}"))
    if group == "accuracy" and run.accuracy is not None:
        better = LOWER_IS_BETTER if run.accuracy.better == "lower" else ""
        rule = f" by {run.accuracy.normalisation}" if run.accuracy.normalisation else ""
        return FigureKind(f"{run.accuracy.metric}{better} over {run.accuracy.images} images {run.accuracy.dataset_sha256[:12]}{rule}")
    return None


def any_known(flags: Iterable[bool | None]) -> bool | None:
    """Return whether any flag is set, None where none is known."""
    reported = [flag for flag in flags if flag is not None]
    return any(reported) if reported else None


def is_throttled(run: RunRecord) -> bool | None:
    """Return whether the processor throttled around the run: a condition says so, or the verdict found it by a counter. None: unknown.

    Under-voltage by itself is another figure.
    """
    if "throttled" in run.verdict.rules:
        return True
    return any_known(condition.throttled_now for condition in run.conditions)


def hottest_c(runs: Iterable[RunRecord]) -> float | None:
    """Return the highest temperature that any sensor of the device showed around any run, None when it has none."""
    temperatures_c = (value for run in runs for condition in run.conditions for value in condition.temperatures_c.values())
    return max(temperatures_c, default=None)


def _net_mj(run: RunRecord) -> float | None:
    return run.energy.net_mj if run.energy is not None and run.energy.net_state == "resolved" else None


def _correct_answer_mj(run: RunRecord) -> float | None:
    """Return the energy of all queries by those that were answered right: of a metric that counts right answers, and where any is right."""
    if run.energy is None or run.accuracy is None or why_unequal_questions(run):
        return None
    if run.generation is None or run.accuracy.metric not in RIGHT_ANSWERS or run.accuracy.value <= 0:
        return None
    return run.energy.gross_mj / run.accuracy.value


def why_unequal_questions(run: RunRecord) -> str | None:
    """Return why the mean energy of a query is not that of the questions of the score; None where each was answered equally often."""
    if run.generation is None or run.accuracy is None:
        return None
    if failed := run.generation.failed_queries:
        return f"{failed} queries gave no answer: their energy is in that of the others"
    queries, questions = run.load.samples if run.load else run.latency.count, run.accuracy.images
    if queries % max(questions, 1) == 0:
        return None
    return f"{queries} queries ask {questions} questions: some are in the energy more often than in the score"


def _goodput_per_s(run: RunRecord) -> float | None:
    answers = run.generation or run.served
    return answers.goodput.requests_per_s if answers and answers.goodput else None


def _steady_power_w(run: RunRecord) -> float | None:
    return run.energy.mean_power_w if run.energy is not None and run.steady is not None else None


def _duty_cycle_ratio(run: RunRecord) -> float | None:
    """Return the share of the timed part in which the model was at work: the rest is the agent's own time, or waiting for queries."""
    if run.load is not None and run.load.target_per_s is not None:
        return run.load.utilisation_ratio
    # The end counts from the start.
    if run.windows is None or run.windows.timed_end_ns <= 0:
        return None
    ratio = run.latency.count * run.latency.mean_ms / (run.windows.timed_end_ns / 1e6)
    # More than the whole time: queries overlapped, and their latencies do not add up to a share of it.
    return ratio if ratio <= 1.0 else None


def _missed_over_runs(runs: Sequence[RunRecord]) -> OverRuns:
    pooled = pooled_misses(run.steady for run in runs)
    return (pooled.ratio, pooled.bounds) if pooled else None


def _slow_down_over_runs(runs: Sequence[RunRecord]) -> OverRuns:
    """Return the slow-down as the matrix of a session has it: in logarithms, since twice and half as long cancel."""
    ratios = [run.together.slow_down_ratio for run in runs if run.together]
    ratio, low, high = slow_down([math.log(value) for value in ratios if value and value > 0])
    return None if ratio is None else (ratio, None if low is None or high is None else (low, high))


# Metrics whose value is the share of items that are answered right.
RIGHT_ANSWERS = frozenset({"exact_match", "accuracy"})
TOO_FEW_QUERIES = "too few queries for a median"
NO_TEXT = "generates no text"
SINGLE = "queries of one token"
NO_FRAMES = "no frames at a steady rate"


def _views(names: str) -> frozenset[View]:
    if unknown := set(names.split()) - EVERY_VIEW:
        raise ValueError(f"there is no view {', '.join(sorted(unknown))}")
    return frozenset(view for view in EVERY_VIEW if view in names.split())


OF_SOME = _views("run compare terminal matrix cases influx csv")


def _percentile(path: str, level: str, **attributes: Any) -> Figure:
    return Figure(
        path=f"{path}.{level}_ms", low=f"{path}.{level}_low_ms", high=f"{path}.{level}_high_ms", unit="ms", better="lower", **attributes
    )


def _token_energy(part: str, path: str, title: str) -> Figure:
    gross = f"generation.energy.{path}"
    return Figure(
        title, f"{part} token mJ", "mJ", "energy", "lower", path=gross, u=gross.replace("_mj", "_u_mj"),
        column=f"energy_{part}_token_gross_mj", choice=f"energy-{part}-token", is_text_model_only=True,
        views=_views("compare influx csv"),
    )  # fmt: skip


_STAGES: tuple[tuple[str, Group], ...] = (("pre", "preprocess"), ("post", "postprocess"))

FIGURES: tuple[Figure, ...] = (
    _percentile(
        "latency", "p50", title="latency p50", heading="p50 ms", group="latency", key="p50_ms", choice="latency",
        always=True, rank=0, trends=(TrendRule("latency", is_default=True),), why_absent=TOO_FEW_QUERIES,
        lower="faster", higher="slower", times="times as long",
    ),
    _percentile(
        "latency", "p90", title="latency p90", heading="p90 ms", group="latency", key="p90_ms", choice="latency-p90",
        always=True, rank=2, trends=(TrendRule("latency-p90"),), why_absent="too few queries for a p90",
        lower="faster", higher="slower", times="times as long",
        views=EVERY_VIEW - {"references"},
    ),
    _percentile(
        "latency", "p99", title="latency p99", heading="p99 ms", group="latency", key="p99_ms", choice="latency-p99",
        why_absent="too few queries for a p99", views=_views("compare influx csv matrix"),
    ),
    Figure(
        "latency mean", "mean ms", "ms", "latency", "lower", path="latency.mean_ms", choice="latency-mean", views=_views("csv"),
    ),
    Figure(
        "throughput", "per s", "per s", "throughput", "higher", path="throughput_per_s", choice="throughput",
        lower="fewer a second", higher="more a second", times="times as many a second",
        always=True, rank=5, views=EVERY_VIEW - {"runs", "chart"},
    ),
    Figure(
        "missed frames", "Missed", "", "latency", "lower", path="steady.missed_ratio", low="steady.missed_low_ratio",
        high="steady.missed_high_ratio", rank=0, is_of_some=True, column="missed_frames_ratio", choice="missed", shown=share,
        why_absent=NO_FRAMES, trends=(TrendRule("missed", "points", 0.5, 0.05, follows_temperature=False, is_default=True),),
        over_runs=_missed_over_runs, lower="fewer missed frames", higher="more missed frames", times="times the share of missed frames",
        views=EVERY_VIEW - {"references", "index"},
    ),
    Figure(
        "jitter p90", "Jitter ms", "ms", "latency", "lower", path="steady.jitter.p90_ms", column="jitter_p90_ms", choice="jitter", rank=3,
        why_absent=NO_FRAMES, lower="less jitter", higher="more jitter", times="times the jitter",
        views=_views("run compare matrix influx csv"),
    ),
    # Better is neither: a run that misses no frame has none.
    *(
        Figure(
            f"time to the first missed frame{words}", f"First missed{words} s", "s", "latency", None, path=f"steady.{name}_s",
            column=f"{name}_s", choice=name.replace("_", "-"), why_absent="no frame was missed", has_spread=False,
            views=_views("compare influx csv"),
        )
        for name, words in (("first_missed", ""), ("first_missed_after_throttling", " after throttling"))
    ),
    # The table of `edgemeter run` has the matrix of its rounds below it.
    Figure(
        "slow-down beside others", "Slow-down", "", "latency", "lower", path="together.slow_down_ratio", column="slow_down_ratio",
        choice="slow-down", over_runs=_slow_down_over_runs, shown=times, rank=0, is_of_some=True, views=OF_SOME - {"run"},
        why_absent="nothing ran at the same time, or not alone in the same round", lower="slowed down less", higher="slowed down more",
        times="times the slow-down",
    ),
    _percentile(
        "generation.ttft", "p50", title="time to first token p50", heading="TTFT ms", group="generation",
        column="ttft_p50_ms", key="ttft_ms", choice="ttft", trends=(TrendRule("ttft"),), rank=0,
        is_text_model_only=True, why_absent=NO_TEXT, views=EVERY_VIEW - {"runs", "cases", "references"},
    ),
    _percentile(
        "generation.tpot", "p50", title="time per output token p50", heading="TPOT ms", group="generation",
        column="tpot_p50_ms", key="tpot_ms", choice="tpot", trends=(TrendRule("tpot"),), rank=1,
        is_text_model_only=True, why_absent=SINGLE, views=EVERY_VIEW - {"runs", "cases", "references"},
    ),
    Figure(
        "prefill rate", "prompt tokens/s", "tokens/s", "generation", "higher", path="generation.prefill_tokens_per_s",
        column="prefill_tokens_per_s", choice="prefill-tokens", is_text_model_only=True, views=_views("compare influx csv"),
    ),
    Figure(
        "decoding rate", "tokens/s", "tokens/s", "generation", "higher", path="generation.decode_tokens_per_s",
        column="decode_tokens_per_s", choice="tokens", rank=0, is_text_model_only=True, why_absent=SINGLE,
        views=_views("run compare terminal matrix influx csv"),
    ),
    Figure(
        "output tokens in all", "out tokens/s", "tokens/s", "generation", "higher", path="generation.output_tokens_per_s",
        column="output_tokens_per_s", choice="output-tokens", is_text_model_only=True, views=_views("compare influx csv"),
    ),
    Figure(
        "output tokens a user", "tokens/s a user", "tokens/s", "generation", "higher", path="generation.user_tokens_per_s",
        column="user_tokens_per_s", choice="user-tokens", is_text_model_only=True, why_absent=SINGLE,
        views=_views("compare influx csv"),
    ),
    # Of other limits it is another figure: no comparison takes it.
    Figure(
        "goodput", "Good per s", "per s", "generation", "higher", name="goodput_per_s", choice="goodput",
        of=_goodput_per_s, reads=("generation.goodput.requests_per_s", "served.goodput.requests_per_s"), views=_views("run influx csv"),
    ),
    *(
        Figure(
            f"{stage}-processing p50", f"{stage} ms", "ms", group, "lower", path=f"{group}.p50_ms", has_spread=False,
            views=_views("compare"),
        )
        for stage, group in _STAGES
    ),
    Figure(
        "duty cycle", "Duty", "", "latency", "higher", name="duty_cycle_ratio", choice="duty-cycle", of=_duty_cycle_ratio,
        reads=("latency.count", "latency.mean_ms", "load.target_per_s", "load.utilisation_ratio", "windows"),
        views=_views("compare matrix cases chart influx csv"), why_absent="its timed part was not recorded, or its queries overlapped",
    ),
    *(
        Figure(
            f"cold start, {words}", f"{words} ms", "ms", "cold_start", "lower", path=f"cold_start.{step}_ms", has_spread=False,
            views=_views("run compare influx csv" if step in ("load", "first", "compile") else "run compare"),
        )
        for step, words in (
            ("process", "process"), ("import", "import"), ("load", "load"), ("first", "first query"), ("compile", "compilation in it"),
        )
    ),
    Figure(
        "peak memory", "Peak MB", "MB", "memory", "lower", path="memory.peak_mb", choice="memory", lower="less memory",
        higher="more memory", times="times the memory", why_absent="not measured on both sides", always=True, rank=3,
        views=EVERY_VIEW - {"runs", "chart", "references", "index"},
    ),
    *(
        Figure(
            f"memory, {words}", f"{words} MB", "MB", "memory", None, path=f"memory.{level}_mb", has_spread=False,
            views=_views("compare"),
        )
        for level, words in (
            ("before_load", "before loading"), ("loaded", "model loaded"), ("prepared_inputs", "prepared inputs"),
            ("grown", "timed growth"),
        )
    ),
    Figure(
        "accuracy", "Accuracy", "", "accuracy", "by its metric", path="accuracy.value", low="accuracy.low", high="accuracy.high",
        key="accuracy", choice="accuracy", has_spread=False, rank=0, shown=accuracy,
        views=EVERY_VIEW - {"references"},
        trends=(
            TrendRule("accuracy", "points", 0.5, 0.02, is_error=False, follows_temperature=False, is_default=True),
            TrendRule("error", "points", 0.5, 0.02, "error of the predictions", is_error=True, follows_temperature=False, is_default=True),
        ),
    ),
    Figure(
        "energy per inference, gross", "Gross mJ", "mJ", "energy", "lower", path="energy.gross_mj", u="energy.gross_u_mj",
        k="energy.gross_k", key="gross_mj", choice="energy", rank=0, trends=(TrendRule("energy", is_default=True),),
        lower="less energy", higher="more energy", times="times the energy",
    ),
    Figure(
        "energy per inference, net", "Net mJ", "mJ", "energy", "lower", path="energy.net_mj", of=_net_mj, u="energy.net_u_mj",
        k="energy.net_k", key="net_mj", choice="energy-net", needs_all=True, rank=3, trends=(TrendRule("energy-net"),),
        lower="less net energy", higher="more net energy", times="times the net energy",
        views=EVERY_VIEW - {"runs", "cases", "references"},
    ),
    Figure(
        "mean power", "W", "W", "energy", None, path="energy.mean_power_w", column="mean_power_w", choice="power", has_spread=False,
        views=_views("compare influx csv"),
    ),
    # The mean power again, where a second is what is paid for.
    Figure(
        "energy per second at the rate", "J/s", "J/s", "energy", None, of=_steady_power_w,
        reads=("energy.mean_power_w", "steady.rate_per_s"), u="energy.mean_power_u_w", k="energy.gross_k", name="steady_power_w",
        choice="power-at-rate", rank=0, is_of_some=True,
        why_absent=NO_FRAMES, views=_views("run terminal matrix cases"),
    ),
    _token_energy("output", "output_token_gross_mj", "energy per output token, gross"),
    _token_energy("prefill", "prefill_token.gross_mj", "energy per prompt token, gross"),
    _token_energy("decode", "decode_token.gross_mj", "energy per decoded token, gross"),
    Figure(
        "energy per correct answer, gross", "mJ/correct", "mJ", "energy", "lower", of=_correct_answer_mj,
        reads=(
            "generation.failed_queries", "energy.gross_mj", "accuracy.metric", "accuracy.value", "accuracy.images", "load.samples",
            "latency.count",
        ),
        name="energy_correct_answer_gross_mj",
        choice="energy-correct", is_text_model_only=True, why_absent="no energy, no right answer, or questions not answered equally often",
        views=_views("run compare terminal influx csv"),
    ),
    Figure(
        "highest temperature", "Hottest °C", "°C", "conditions", None, of=lambda run: hottest_c([run]), reads=("conditions",),
        name="temperature_max_c", key="temperature_c", views=_views("runs chart csv"),
    ),
    Figure(
        "share of throttled runs", "Throttled", "", "conditions", "lower", of=is_throttled, reads=("conditions", "verdict.reasons"),
        name="is_throttled", key="throttled_ratio", choice="throttling", is_truth=True, views=_views("runs chart"),
        trends=(TrendRule("throttling", "share", 10.0, 0.1, only_valid=False, follows_temperature=False, is_default=True),),
    ),
    Figure(
        "share of runs with under-voltage", "Under-voltage", "", "conditions", "lower", reads=("conditions",),
        of=lambda run: any_known(condition.under_voltage_now for condition in run.conditions),
        name="is_under_voltage", is_truth=True, views=_views("runs"),
    ),
)  # fmt: skip


def figure(name: str) -> Figure:
    """Return the figure of that name; raises KeyError if there is none."""
    return {entry.name: entry for entry in FIGURES}[name]


def in_view(view: View) -> Sequence[Figure]:
    """Return the figures of a view, in the order of the table."""
    return [entry for entry in FIGURES if view in entry.views]


def record_names(view: Literal["influx", "csv"]) -> set[str]:
    """Return the names of the figures in a view of the record, with those of their uncertainties, and in exports those of their bounds."""
    paths = {path for entry in in_view(view) for path in (entry.path, entry.u, *((entry.low, entry.high) if view == "csv" else ()))}
    return {path.replace(".", "_") for path in paths if path} | {entry.name for entry in in_view(view) if not entry.path}
