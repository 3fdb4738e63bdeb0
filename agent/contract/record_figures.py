"""Parts of the record: the figures of a run (latency, memory, energy).

Every field with a dimension ends in its unit (`_ms`, `_w`, `_mj`, `_mb`, `_c`, `_hz`, `_ns`); W x
ms = mJ. Absent is null.
"""

from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.number_text import count, significant
from edgemeter.agent.base.types import (
    Celsius,
    Count,
    Int64,
    Quantity,
    QuantityOrZero,
    Ratio,
    SignedQuantity,
    TimeNs,
)
from edgemeter.agent.contract.record_conditions import Model, RecordPart, RuntimeInfo

Scope = Literal["soc-rails", "module", "board-input", "wall-ac", "gpu-board", "cpu-package"]
# From the most to the least of what a device draws.
WIDEST_FIRST: tuple[Scope, ...] = (
    "wall-ac",
    "board-input",
    "module",
    "soc-rails",
    "cpu-package",
    "gpu-board",
)


class Latency(RecordPart, frozen=True, kw_only=True):
    """Inference latency over the timed queries."""

    count: Count  # Number of timed queries, or of gaps between tokens.
    mean_ms: Quantity  # Mean latency in ms.
    max_ms: Quantity  # Highest latency in ms.
    p50_ms: Quantity | None = None  # Median latency in ms; null if too few queries support it.
    p90_ms: Quantity | None = None  # 90th percentile in ms; null if too few queries support it.
    p99_ms: Quantity | None = None  # 99th percentile in ms; null if too few queries support it.
    early_stopping_ms: dict[str, Quantity] = {}
    """MLPerf's early-stopping estimate in ms, by percentile; only in scenario `single_stream`."""


class Stage(RecordPart, frozen=True, kw_only=True):
    """Time of one step around the inference."""

    p50_ms: QuantityOrZero  # Median in ms.
    p90_ms: QuantityOrZero  # 90th percentile in ms.


class ColdStart(RecordPart, frozen=True, kw_only=True):
    """Time from nothing to the first prediction, in the run's own fresh process."""

    process_ms: QuantityOrZero | None  # Start of the process in ms.
    import_ms: QuantityOrZero | None  # Import of the runtime in ms; null for a function.
    load_ms: QuantityOrZero | None  # Loading of the model in ms; null for a function.
    first_ms: QuantityOrZero  # First query, or first call of a function, in ms.
    compile_ms: QuantityOrZero | None = None
    """First query minus the median of later ones, in ms; null if the model does not compile in the
    first query."""


class WarmUp(RecordPart, frozen=True, kw_only=True):
    """Queries that ran before timing."""

    duration_ms: QuantityOrZero  # Duration of the warm-up in ms.
    steady: bool  # Whether the running median settled.


class Load(RecordPart, frozen=True, kw_only=True):
    """The load offered to the model.

    The offered rate is that of an open loop (scenarios `poisson` and `steady`).
    """

    samples: Count
    """Number of samples: a batch in each query, or several calls of a short function."""
    target_per_s: Quantity | None = None  # Offered rate in queries per second.
    utilisation_ratio: QuantityOrZero | None = None
    """Share of the timed part in which a query or frame was processed; null for a server."""
    is_sustained: bool | None = None
    """Whether the model kept up with the offered rate. Null if a server's schedule is too short to
    decide."""
    unserved: Count = 0  # Arrivals that were never served.
    failures: dict[str, Count] = {}
    """Queries that a server did not answer, by kind, e.g. `http 429`; no statistic includes
    them."""
    in_flight_max: Count | None = None
    """Largest number of queries in progress at a server; null if one follows the other."""
    concurrency: Count | None = None
    """Users in the scenario `concurrent`, each with one query at a time; otherwise null."""

    @property
    def failed_queries(self) -> int:
        return sum(self.failures.values())


class Steady(RecordPart, frozen=True, kw_only=True):
    """Frames that arrive at a fixed rate and have a deadline (scenario `steady`).

    All counts are over the whole schedule.

    A frame is dropped where a newer one took its place before it was begun, and late where its
    answer came after the deadline.
    """

    rate_per_s: Quantity  # Frames per second.
    deadline_ms: QuantityOrZero  # Longest time from a frame's arrival to its answer in ms.
    frames: Count  # Frames that arrived.
    dropped: Count  # Frames that were never begun.
    late: Count  # Frames that were answered after the deadline.
    missed_ratio: Ratio  # Share of the frames that were dropped or late.
    jitter: Stage | None = None
    """Difference between the time between two answers and the time between their frames."""


class Neighbour(RecordPart, frozen=True, kw_only=True):
    """A case that ran at the same time."""

    model: str  # Name of the model.
    sha256: str  # SHA-256 of its file.
    runtime: str  # Its runtime.
    threads: Count  # Its threads.
    cpus: tuple[Count, ...] | None = None  # Cores that it was pinned to; null: any.

    @classmethod
    def of(cls, model: Model, runtime: RuntimeInfo, cpus: tuple[int, ...] | None) -> "Neighbour":
        return cls(
            model=model.name,
            sha256=model.sha256,
            runtime=runtime.name,
            threads=runtime.threads,
            cpus=cpus,
        )

    @property
    def setting_text(self) -> str:
        """How it ran: `onnx 1 thread on core 0`."""
        cores = " and ".join(map(str, self.cpus or ()))
        return (
            f"{self.runtime} {count(self.threads, 'thread')}{f' on core {cores}' if cores else ''}"
        )


class Together(RecordPart, frozen=True, kw_only=True):
    """A run at the same time as runs of other cases.

    Every figure of it is over the overlap, in which all of them were timed.

    Its energy is that of all of them, by the inferences of this one.
    """

    neighbours: Annotated[tuple[Neighbour, ...], msgspec.Meta(min_length=1)]  # The other cases.
    slow_down_ratio: Quantity | None = None
    """Mean latency divided by that of the same model alone in the same round; null without such a
    run."""

    @property
    def names(self) -> str:
        """The models that ran beside this one: `detector and llm`."""
        return " and ".join(neighbour.model for neighbour in self.neighbours)

    @property
    def words(self) -> str:
        """The run's load in words.

        For example `beside llm (llama 1 thread on core 0): mean latency 1.98 times that of the
        model alone`.
        """
        company = ", ".join(
            f"{neighbour.model} ({neighbour.setting_text})" for neighbour in self.neighbours
        )
        ratio = self.slow_down_ratio
        slower = (
            ""
            if ratio is None
            else f": mean latency {significant(ratio, 3)} times that of the model alone"
        )
        return f"beside {company}{slower}"


class CurvePoint(RecordPart, frozen=True, kw_only=True):
    """One interval of a sustained run."""

    p50_ms: Quantity | None = None  # Median latency in ms.
    clock_hz: QuantityOrZero | None = None  # Mean CPU clock in Hz.
    temperature_c: Celsius | None = None  # Mean of the highest temperature in °C.
    power_w: SignedQuantity | None = None  # Mean power in W.
    tpot_ms: QuantityOrZero | None = None  # Median time per output token in ms.
    missed: Count | None = None
    """Frames of the interval without an answer by the deadline (scenario `steady`)."""


class Sustained(RecordPart, frozen=True, kw_only=True):
    """A long run over time."""

    interval_s: Quantity  # Length of an interval in s.
    points: tuple[CurvePoint, ...]  # The intervals in order, the first from 0 s on.
    level_p50_ms: Quantity | None = None  # Median latency of the first minute in ms.
    throttled_after_s: QuantityOrZero | None = None
    """When latency or clock left the level of the first minute, in s; null if never."""
    throttled_by: tuple[Literal["latency", "clock"], ...] = ()  # Which of the two left the level.


class Memory(RecordPart, frozen=True, kw_only=True):
    """Resident memory of the run's process, or of the server that answered it."""

    peak_mb: QuantityOrZero | None
    """Peak resident memory at the end of the timed part in MB; for a server since its start.
    Several processes are added without shared memory. Null if it cannot be read."""
    loaded_mb: QuantityOrZero | None = None
    """Resident memory after loading the model, in MB; null for a server."""
    grown_mb: SignedQuantity | None = None
    """Growth during the timed part, in MB, without the memory of the benchmark itself; null if not
    measured."""


class Energy(RecordPart, frozen=True, kw_only=True):
    """Energy per inference from one sensor. An unknown uncertainty is null: it is not zero."""

    sensor: str  # Id of the power sensor.
    scope: Scope  # Part of the machine that the sensor sees.
    excludes: tuple[str, ...]  # Consumers that the scope leaves out.
    gross_mj: Quantity  # Energy per inference in mJ, of all that the sensor sees.
    gross_u_mj: QuantityOrZero | None
    """Expanded uncertainty (95%) of `gross_mj` in mJ; null if a term of the budget is unknown."""
    net_mj: Quantity | None
    """Energy per inference above idle power, in mJ; null if it is below the uncertainty of idle
    power."""
    net_u_mj: QuantityOrZero | None
    """Expanded uncertainty (95%) of `net_mj` in mJ; null if a term of the budget is unknown."""
    after_load_mj: SignedQuantity | None = None
    """Energy of what ran on after the load, such as a fan, in mJ of the whole run; an estimate
    without an interval."""
    mean_power_w: Quantity  # Mean power over the timed part in W.
    idle_before_w: SignedQuantity | None  # Mean idle power before the timed part in W.
    idle_after_w: SignedQuantity | None  # Mean idle power after the timed part in W.
    window_ms: Quantity
    """Length of the timed part in ms, without random pauses; for single queries of a language model
    the length of the queries."""
    interval_reason: str | None = None
    """Why an uncertainty is unknown, with the remedy; null if both are known."""

    @property
    def net_state(self) -> Literal["resolved", "not_resolvable", "no_idle"]:
        """Whether the net energy stands out from the uncertainty of idle power.

        `no_idle`: idle power was not measured.
        """
        if self.net_mj is not None:
            return "resolved"
        return (
            "no_idle"
            if self.idle_before_w is None and self.idle_after_w is None
            else "not_resolvable"
        )

    def why_no_net(self, idle_s: float, to_idle: str) -> str | None:
        """Return why there is no net energy, and the remedy; None where there is one.

        The machine idled for `idle_s` before and after; `to_idle` is how one sets that, such as
        `--idle`.
        """
        remedy = f"let it idle longer, with {to_idle} {2 * idle_s or 10:.4g}"
        if self.net_state == "no_idle":
            return f"not known: {idle_s:.4g} s of idle give {self.sensor} no idle power; {remedy}"
        if self.net_state == "resolved":
            return None
        if self.after_load_mj is not None:
            return (
                "not resolvable: what ran on after the load, such as a fan, hides idle power; "
                f"set the fan to one speed, or {remedy}"
            )
        return (
            "not resolvable: it is lost in the uncertainty of idle power; measure "
            f"longer, or {remedy}"
        )

    @property
    def mean_power_u_w(self) -> float | None:
        """Expanded uncertainty (95%) of `mean_power_w` in W.

        It is as large a share of it as of the energy, since the time is exact.
        """
        if self.gross_u_mj is None or not self.gross_mj:
            return None
        return self.gross_u_mj * abs(self.mean_power_w / self.gross_mj)


class Windows(RecordPart, frozen=True, kw_only=True):
    """When the parts of the run took place.

    All but the first count from the first timed query and are negative before it.
    """

    timed_start_ns: TimeNs  # Monotonic clock at the first timed query, in ns.
    timed_end_ns: TimeNs  # End of the timed part in ns.
    idle_before_ns: tuple[Int64, Int64] | None = None
    """Start and end of the idle time before the timed part in ns."""
    idle_after_ns: tuple[Int64, Int64] | None = None
    """Start and end of the idle time after the timed part in ns."""


class PowerTrace(RecordPart, frozen=True, kw_only=True):
    """A power sensor that gave readings, as far as computing its energy again asks.

    Its readings are the series `power.NAME`, or of an energy counter `energy.NAME`, and
    `power_at.NAME`.
    """

    name: str  # Name of the sensor in the configuration.
    sensor: str  # Id of the sensor.
    scope: Scope  # Part of the machine that the sensor sees.
    period_ms: QuantityOrZero  # Sampling period in ms.
    resolution_w: QuantityOrZero | None = None  # Step of a power reading in W.
    resolution_mj: QuantityOrZero | None = None  # Step of an energy counter in mJ.
