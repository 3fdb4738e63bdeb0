"""The table of figures: every number of a run that a view shows, declared once.

An entry has the title of a figure, its unit, its better direction, its field in the record, its
uncertainty, its rule for the trend, and its views. The name is the same everywhere: in the record,
JSON, CSV, InfluxDB, the ledger's columns, the page's addresses and the options of commands. All of
these are loops over the table, so a new figure needs an entry here and a field in the record only.
The bounds of a figure are those of the type of its field, so a record with a figure outside of them
is refused where it is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Flag, auto
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

from edgemeter.agent.base.flags import any_known
from edgemeter.agent.base.number_text import accuracy, plain_digits, share, significant, span, times
from edgemeter.agent.base.types import LEAST

if TYPE_CHECKING:
    from edgemeter.agent.contract.record import RunRecord

# The group of the record's provenance; figures of `conditions` are facts about the machine.
Group = Literal[
    "latency",
    "throughput",
    "generation",
    "preprocess",
    "postprocess",
    "cold_start",
    "memory",
    "accuracy",
    "energy",
    "conditions",
]
Better = Literal["higher", "lower", "by its metric"]


class FigureView(Flag):
    """Where a figure is shown.

    All are in exports, and all but facts about the machine in the JSON and CSV of a comparison.
    """

    NONE = 0
    RUN = auto()  # The table of `edgemeter run`.
    TABLE = auto()  # The tables of a comparison, in the terminal and on the page.
    # A comparison says whether it is better or worse, and limits and choices may name it.
    JUDGED = auto()
    LIST = auto()  # The page's lists of runs.
    CHART = auto()  # The page's charts over time.


RUN, TABLE, JUDGED, LIST, CHART = (
    FigureView.RUN,
    FigureView.TABLE,
    FigureView.JUDGED,
    FigureView.LIST,
    FigureView.CHART,
)

# A shorter run may miss what a machine does once a minute, such as its cron.
MINUTE_S = 60.0

# The names of figures that decisions and rules use.
LATENCY, THROUGHPUT, MISSED = "latency_p50_ms", "throughput_per_s", "steady_missed_ratio"
MEMORY, ACCURACY, ENERGY = "memory_peak_mb", "accuracy_value", "energy_gross_mj"
TTFT, TPOT = "generation_ttft_p50_ms", "generation_tpot_p50_ms"
TOKEN_ENERGY, CORRECT_ENERGY = (
    "generation_energy_output_token_gross_mj",
    "energy_correct_answer_gross_mj",
)


@dataclass(frozen=True, slots=True)
class TrendRule:
    """How the trend follows a figure.

    `matters` is the smallest difference that matters, on the scale: per cent, or points. `floor` is
    the least scatter between days. Figures that are `is_default` are followed unless others are
    asked for.
    """

    scale: Literal["log", "points", "share"] = "log"
    matters: float = 3.0
    is_default: bool = False
    floor: float = 0.05


@dataclass(frozen=True)
class Figure:
    """One figure of a run.

    path: its field in the record; if `of` computes it from the fields `reads`, its name.
    title: the heading of its column.
    spoken: its name in a sentence, if that is not the title.
    rank: a narrow terminal drops columns with the highest rank first; 0 is never dropped.
    low, high, u: the fields of its 95% bounds, or of its expanded uncertainty.
    is_rare: a tail or missed frames, which have an interval only if each run takes a minute.
    needs_all: a case has the figure only if each of its runs has it.
    why_absent: the reason for its absence, unless the record has one.
    """

    path: str
    title: str
    unit: str
    group: Group
    better: Better | None = None
    views: FigureView = FigureView.NONE
    _: KW_ONLY
    of: "Callable[[RunRecord], float | bool | None] | None" = None
    reads: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    u: str = ""
    trend: TrendRule | None = None
    needs_all: bool = False
    is_truth: bool = False
    rank: int = 4
    is_rare: bool = False
    spoken: str = ""
    why_absent: str = "not recorded"
    shown: Callable[[float | None], str] = significant

    @cached_property
    def name(self) -> str:
        """Its name everywhere: `latency_p50_ms`."""
        return field_name(self.path)

    @property
    def heading(self) -> str:
        """The title with the unit: `p50 ms`."""
        return f"{self.title} {self.unit}".rstrip()

    @property
    def is_main(self) -> bool:
        """Whether it is shown where there is little room."""
        return self.rank <= 1

    @cached_property
    def value(self) -> "Callable[[RunRecord], Any]":
        """The function that reads the figure of a run, whatever its provenance.

        It returns None if the run has none.
        """
        return self.of or reader(self.path)

    @property
    def bound_names(self) -> tuple[str, ...]:
        """The names of the record's fields with its bounds or its uncertainty, if any."""
        return tuple(field_name(path) for path in (self.low, self.high, self.u) if path)

    def text(self, value: float) -> str:
        """Return a value with the unit: `140 ms`."""
        return f"{self.shown(value)} {self.unit}".rstrip()

    def table_text(self, value: float | None) -> str:
        """Return the text of a value in the table of `edgemeter run`, "-" for None."""
        return share(value) if self.is_share else plain_digits(value)

    def range_text(self, low: float, high: float, *limits: float) -> str:
        """Return the text of a range, with enough digits for its limits.

        They show on which side of the limits its ends lie.
        """
        per, unit = (100, "%") if self.is_share else (1, "")
        return f"{span(*(per * value for value in (low, high, *limits)))}{unit}"

    @property
    def is_share(self) -> bool:
        """Whether it is a share; shares may be 0, so they are compared by their difference."""
        return self.shown is share

    def shows_scatter(self, values: Sequence[float], *, take_a_minute: bool) -> bool:
        """Return whether values of runs show its scatter.

        Rare events come in bursts, and a run without any does not show them.
        """
        if not self.is_rare:
            return True
        return take_a_minute and (not self.is_share or (min(values) > 0 and len(set(values)) > 1))

    @property
    def change_name(self) -> str:
        """The name of its change.

        For example `latency_p50_ms_ratio`, for a share or an accuracy
        `steady_missed_ratio_difference`.
        """
        return (
            f"{self.name}_{'difference' if self.is_share or self.group == 'accuracy' else 'ratio'}"
        )

    @property
    def is_of_text(self) -> bool:
        """Whether only runs of language models have it."""
        return any(path.startswith("generation.") for path in (self.path, *self.reads))

    @cached_property
    def provenance_groups(self) -> frozenset[str]:
        """The groups of the record's `provenance` that it is computed from.

        The figure is measured if all of them are.
        """
        groups = {self.group, *(path.partition(".")[0] for path in self.reads)} & {
            *get_args(Group)
        } - {"conditions"}
        return frozenset("latency" if group == "generation" else group for group in groups)


def reader(path: str) -> "Callable[[RunRecord], Any]":
    """Return a function that reads a path such as `energy.gross_mj` of a run.

    It returns None for a missing part or an empty path.
    """
    if not path:
        return lambda _: None
    first, *deeper = map(attrgetter, path.split("."))
    if not deeper:
        return first

    def value(run: "RunRecord") -> Any:
        part: Any = first(run)
        for read in deeper:
            if part is None:
                return None
            part = read(part)
        return part

    return value


def field_name(path: str) -> str:
    """Return the name of a field of the record: `energy_gross_mj` for `energy.gross_mj`."""
    return path.replace(".", "_")


def is_throttled(run: "RunRecord") -> bool | None:
    if run.verdict.violations and "throttled" in run.verdict.rules:
        return True
    return any_known([condition.throttled_now for condition in run.conditions])


def hottest_c(run: "RunRecord") -> float | None:
    temperatures_c = [
        value for condition in run.conditions for value in condition.temperatures_c.values()
    ]
    return max(temperatures_c) if temperatures_c else None


def _correct_answer_mj(run: "RunRecord") -> float | None:
    if run.energy is None or run.accuracy is None or why_unequal_questions(run):
        return None
    if (
        run.generation is None
        or run.accuracy.metric not in RIGHT_ANSWERS
        or run.accuracy.value < LEAST
    ):
        return None
    return run.energy.gross_mj / run.accuracy.value


def why_unequal_questions(run: "RunRecord") -> str | None:
    """Return why the mean energy of a query is not that of a question.

    None if each question was asked equally often.
    """
    if run.generation is None or run.accuracy is None:
        return None
    if run.load and (failed := sum(run.load.failures.values())):
        return f"{failed} queries gave no answer: their energy is in that of the others"
    queries, questions = run.load.samples if run.load else run.latency.count, run.accuracy.images
    if queries % max(questions, 1) == 0:
        return None
    return (
        f"{queries} queries ask {questions} questions: some are in the energy more often "
        "than in the score"
    )


def takes_a_minute(run: "RunRecord") -> bool:
    """Return whether a run is long enough to show rare events."""
    if run.steady:
        # The run lasts until the frame after the last would be due.
        return run.steady.frames >= MINUTE_S * run.steady.rate_per_s
    return run.windows is not None and run.windows.timed_end_ns >= MINUTE_S * 1e9


# Metrics whose value is the share of right answers.
RIGHT_ANSWERS = frozenset({"exact_match", "accuracy"})
TOO_FEW_QUERIES = "too few queries for a median"
SINGLE = "queries of one token"
NO_FRAMES = "no frames at a steady rate"


def _token_energy(path: str, title: str, views: FigureView = JUDGED, rank: int = 4) -> Figure:
    gross = f"generation.energy.{path}"
    return Figure(
        gross, title, "mJ", "energy", "lower", views, u=gross.replace("_mj", "_u_mj"), rank=rank
    )


FIGURES: tuple[Figure, ...] = (
    Figure(
        "latency.p50_ms", "p50", "ms", "latency", "lower", RUN | TABLE | JUDGED | LIST | CHART,
        trend=TrendRule(is_default=True), rank=0, spoken="latency", why_absent=TOO_FEW_QUERIES,
    ),
    Figure(
        "latency.p90_ms", "p90", "ms", "latency", "lower", RUN | TABLE | JUDGED | LIST | CHART,
        trend=TrendRule(), rank=2, is_rare=True,
        why_absent="too few queries for a p90 (use --mode normal)",
    ),
    Figure(
        "latency.p99_ms", "p99", "ms", "latency", "lower", JUDGED, is_rare=True,
        why_absent="too few queries for a p99 (use --mode normal)",
    ),
    Figure("latency.mean_ms", "mean", "ms", "latency", "lower"),
    Figure(
        "throughput_per_s", "throughput", "/s", "throughput", "higher",
        RUN | TABLE | JUDGED | CHART, rank=5,
    ),
    Figure(
        "steady.missed_ratio", "missed", "", "latency", "lower",
        RUN | TABLE | JUDGED | LIST | CHART, trend=TrendRule("points", 0.5, is_default=True),
        rank=0, is_rare=True, spoken="missed frames", why_absent=NO_FRAMES, shown=share,
    ),
    Figure(
        "steady.jitter.p90_ms", "jitter", "ms", "latency", "lower", RUN | JUDGED, rank=3,
        is_rare=True, why_absent=NO_FRAMES,
    ),
    # `edgemeter run` shows it below the table.
    Figure(
        "together.slow_down_ratio", "slow-down", "", "latency", "lower", TABLE | JUDGED, rank=0,
        why_absent="nothing ran at the same time, or not alone in the same round", shown=times,
    ),
    Figure(
        "generation.ttft.p50_ms", "TTFT", "ms", "generation", "lower", RUN | TABLE | JUDGED | CHART,
        trend=TrendRule(), rank=0, why_absent="generates no text",
    ),
    Figure(
        "generation.tpot.p50_ms", "TPOT", "ms", "generation", "lower", RUN | TABLE | JUDGED | CHART,
        trend=TrendRule(), rank=1, why_absent=SINGLE,
    ),
    Figure(
        "generation.prefill_tokens_per_s", "pp", "t/s", "generation", "higher", TABLE | JUDGED,
        rank=1,
    ),
    Figure(
        "generation.decode_tokens_per_s", "tg", "t/s", "generation", "higher", RUN | TABLE | JUDGED,
        rank=0, why_absent=SINGLE,
    ),
    Figure("generation.output_tokens_per_s", "output", "t/s", "generation", "higher", JUDGED),
    Figure(
        "generation.user_tokens_per_s", "per user", "t/s", "generation", "higher", JUDGED,
        why_absent=SINGLE,
    ),
    Figure("preprocess.p50_ms", "pre-processing", "ms", "preprocess", "lower"),
    Figure("postprocess.p50_ms", "post-processing", "ms", "postprocess", "lower"),
    Figure("cold_start.process_ms", "process start", "ms", "cold_start", "lower", RUN),
    Figure("cold_start.import_ms", "import", "ms", "cold_start", "lower", RUN),
    Figure("cold_start.load_ms", "load", "ms", "cold_start", "lower", RUN),
    Figure("cold_start.first_ms", "first inference", "ms", "cold_start", "lower", RUN),
    Figure("cold_start.compile_ms", "compilation", "ms", "cold_start", "lower", RUN),
    Figure(
        "memory.peak_mb", "memory", "MB", "memory", "lower", RUN | TABLE | JUDGED, rank=3,
        why_absent="not measured on both sides",
    ),
    Figure("memory.loaded_mb", "memory after load", "MB", "memory"),
    Figure("memory.grown_mb", "memory growth", "MB", "memory"),
    Figure(
        "accuracy.value", "accuracy", "", "accuracy", "by its metric",
        RUN | TABLE | JUDGED | LIST | CHART, low="accuracy.low", high="accuracy.high",
        trend=TrendRule("points", 0.5, is_default=True, floor=0.02), rank=0, shown=accuracy,
    ),
    Figure(
        "energy.gross_mj", "energy", "mJ", "energy", "lower", RUN | TABLE | JUDGED | LIST | CHART,
        u="energy.gross_u_mj", trend=TrendRule(is_default=True), rank=0,
    ),
    Figure(
        "energy.net_mj", "net energy", "mJ", "energy", "lower", RUN | TABLE | JUDGED | CHART,
        u="energy.net_u_mj", trend=TrendRule(), needs_all=True, rank=3,
    ),
    Figure("energy.after_load_mj", "energy after the load", "mJ", "energy", None, RUN),
    Figure("energy.mean_power_w", "power", "W", "energy", None, RUN | TABLE),
    _token_energy("output_token_gross_mj", "energy per token", TABLE | JUDGED, 0),
    _token_energy("prefill_token_gross_mj", "energy per prompt token"),
    Figure(
        "energy_correct_answer_gross_mj", "energy per correct answer", "mJ", "energy", "lower",
        RUN | TABLE | JUDGED, of=_correct_answer_mj,
        reads=(
            "generation.counts", "energy.gross_mj", "accuracy.metric", "accuracy.value",
            "accuracy.images", "load.samples", "load.failures", "latency.count",
        ),
        rank=3,
        why_absent="no energy, no right answer, or questions not answered equally often",
    ),
    Figure(
        "temperature_max_c", "temperature", "°C", "conditions", None, LIST | CHART, of=hottest_c,
        reads=("conditions",),
    ),
    Figure(
        "is_throttled", "throttled", "", "conditions", "lower", LIST | CHART, of=is_throttled,
        reads=("conditions", "verdict.violations"),
        trend=TrendRule("share", 10.0, is_default=True, floor=0.1), is_truth=True, shown=share,
    ),
    Figure(
        "is_under_voltage", "under-voltage", "", "conditions", "lower", LIST,
        of=lambda run: any_known([condition.under_voltage_now for condition in run.conditions]),
        reads=("conditions",), is_truth=True,
    ),
)  # fmt: skip


def figure(name: str) -> Figure:
    """Return the figure of that name; raises KeyError if there is none."""
    return {entry.name: entry for entry in FIGURES}[name]


@cache
def in_view(view: FigureView) -> Sequence[Figure]:
    """Return the figures of a view, in the order of the table."""
    return [entry for entry in FIGURES if view & entry.views]
