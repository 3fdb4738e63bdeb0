"""Parts of the record: the figures of a run (latency, memory, energy).

Every field with a dimension ends in its unit (`_ms`, `_w`, `_mj`, `_mb`, `_c`, `_hz`, `_ns`); W x ms = mJ. Absent is null.
"""

from typing import Literal

from edgemeter.agent.base.figures import significant
from edgemeter.agent.base.types import Count, Int64, Positive, Ratio, TimeNs
from edgemeter.agent.contract.record_conditions import Model, RecordPart, RuntimeInfo

Scope = Literal["soc-rails", "module", "board-input", "wall-ac", "gpu-board", "cpu-package"]
# From the most to the least of what a device draws.
WIDEST_FIRST: tuple[Scope, ...] = ("wall-ac", "board-input", "module", "soc-rails", "cpu-package", "gpu-board")


class Latency(RecordPart, frozen=True, kw_only=True):
    """Inference latency over the timed queries. Bounds are distribution-free 95% bounds from order statistics of the effective queries."""

    count: Count  # Number of timed queries; of inter-token latencies the number of gaps.
    mean_ms: float  # Mean latency in ms.
    min_ms: float  # Lowest latency in ms.
    max_ms: float  # Highest latency in ms.
    sd_ms: float  # Standard deviation in ms.
    p50_ms: float | None = None  # Median latency in ms; null if too few queries support it.
    p50_low_ms: float | None = None  # Lower bound of p50 in ms.
    p50_high_ms: float | None = None  # Upper bound of p50 in ms.
    p90_ms: float | None = None  # 90th percentile in ms; null if too few queries support it.
    p90_low_ms: float | None = None  # Lower bound of p90 in ms.
    p90_high_ms: float | None = None  # Upper bound of p90 in ms.
    p95_ms: float | None = None  # 95th percentile in ms; null if too few queries support it.
    p95_low_ms: float | None = None  # Lower bound of p95 in ms.
    p95_high_ms: float | None = None  # Upper bound of p95 in ms.
    p99_ms: float | None = None  # 99th percentile in ms; null if too few queries support it.
    p99_low_ms: float | None = None  # Lower bound of p99 in ms.
    p99_high_ms: float | None = None  # Upper bound of p99 in ms.
    p99_9_ms: float | None = None  # 99.9th percentile in ms; null if too few queries support it.
    p99_9_low_ms: float | None = None  # Lower bound of p99.9 in ms.
    p99_9_high_ms: float | None = None  # Upper bound of p99.9 in ms.
    early_stopping_ms: dict[str, float] = {}  # MLPerf's early-stopping estimate in ms, by percentile.
    early_stopping_reason: str | None = None
    """Why there is no early-stopping estimate although enough queries were timed; null if there is one."""
    refused: dict[str, Count] = {}  # Percentiles that too few queries support, with the number of queries each one needs.
    effective: dict[str, Count] = {}
    """How many independent queries those timed are worth, by percentile: all of them unless they depend on each other."""
    unbounded: dict[str, Count] = {}
    """Percentiles without bounds, because queries depend on each other, with about the number of queries each one needs."""


class Stage(RecordPart, frozen=True, kw_only=True):
    """Time of one step around the inference."""

    count: Count  # Number of times the step ran.
    mean_ms: float  # Mean in ms.
    p50_ms: float  # Median in ms.
    p90_ms: float  # 90th percentile in ms.


class ColdStart(RecordPart, frozen=True, kw_only=True):
    """Time from nothing to the first prediction, in the run's own fresh process."""

    process_ms: float | None  # Start of the process in ms.
    import_ms: float | None  # Import of the runtime in ms; null for a function, whose process imported what it liked.
    load_ms: float | None  # Loading of the model in ms; null for a function, as above.
    first_ms: float  # First query in ms; of the runtime `python` its first call.
    compile_ms: float | None = None
    """First query less the median of later ones, in ms, where the model may compile in it; null where it compiles when loaded, or never."""
    compiled_modules: Count | None = None
    """Python modules without valid bytecode, which had to be compiled before the first query; null if not counted."""


class WarmUp(RecordPart, frozen=True, kw_only=True):
    """Queries that ran before timing."""

    queries: Count  # Number of warm-up queries.
    duration_ms: float  # Duration of the warm-up in ms.
    steady: bool  # Whether the running median settled.


class Goodput(RecordPart, frozen=True, kw_only=True):
    """Requests that met every limit that was set for them; one that failed or was left out is never good."""

    limits_ms: dict[str, float]  # The limits in ms by metric: `ttft`, `tpot` (of the request), `latency` (of the whole request).
    good: Count  # Requests that met all limits.
    good_ratio: Ratio  # Their share of all requests, those that failed or were left out among them.
    requests_per_s: float  # Good requests a second, over the time that the throughput is over.
    missed: dict[str, Count] = {}  # Answered requests beyond each limit.


class Load(RecordPart, frozen=True, kw_only=True):
    """The load offered to the model; offered rate and queueing are those of an open loop (scenarios `poisson` and `steady`)."""

    samples_per_query: Positive  # Samples in a query.
    calls_per_query: Positive = 1  # Calls of the runtime in a query.
    samples: Count  # Samples in all.
    target_per_s: float | None = None  # Offered rate in queries per second.
    achieved_per_s: float | None = None  # Served rate in queries per second.
    utilisation_ratio: float | None = None
    """Share of the time in which a query, or the call of a frame, was processed; from 1 on (of frames near 1) the rate cannot be
    sustained. Null for a server, which may process several at once."""
    is_sustained: bool | None = None
    """Whether the model kept up with the offered rate; null where the schedule of a server is too short for its answers to tell."""
    unserved: Count = 0  # Arrivals that were never served.
    in_flight_max: Count | None = None  # Most queries that a server was answering at once; null where one follows the other.
    concurrency: Count | None = None  # Users of a closed loop (scenario `concurrent`), each with one query at a time; null elsewhere.
    ramp_up_ms: float | None = None
    """Time at the beginning in ms until each of several users had its first answer; these first queries are counted in `samples` only, and
    rates leave the time out. Null elsewhere."""
    tail_ms: float | None = None
    """Time at the end in ms in which some of these users had no query left, which rates leave out; in an open loop the time after the last
    arrival, which rates include. Null elsewhere."""
    pauses: Count = 0
    """Random pauses between queries, made so that these do not keep step with a clock of a power sensor, or waits after a server
    refused (`Retry-After`, or 0.1 s); they are in no latency."""
    paused_ms: float = 0.0
    """Length of all pauses in ms; throughput and energy leave them out. Of users (`concurrency`) it is the sum of their waits, in which the
    others go on: rates and energy include it."""
    queueing: Stage | None = None  # Time from the scheduled arrival to the call. What waits inside a server is part of `service`.
    service: Stage | None = None  # Time of the call itself; queueing and service make the latency.


class Steady(RecordPart, frozen=True, kw_only=True):
    """Frames that arrive at a fixed rate and have a deadline (scenario `steady`), over the whole schedule.

    A frame is dropped where newer ones took its place in the queue before it was begun, and late where its answer came after the deadline.
    """

    rate_per_s: float  # Frames per second.
    deadline_ms: float  # Longest time from a frame's arrival to its answer in ms.
    queue_frames: Count  # Frames that wait at most.
    frames: Count  # Frames that arrived.
    dropped: Count  # Frames that were never begun.
    late: Count  # Frames that were answered after the deadline.
    woke_late: Count = 0  # Late frames of which Edgemeter's late wake-up is the cause.
    missed_ratio: Ratio  # Share of the frames that were dropped or late.
    missed_low_ratio: Ratio | None = None  # Lower bound (95%) of `missed_ratio`; null where the frames depend on each other too much.
    missed_high_ratio: Ratio | None = None  # Upper bound (95%) of `missed_ratio`; null as above.
    effective: Count | None = None  # How many independent frames those that arrived are worth.
    bursts: Count | None = None  # Bursts that missed frames came in: as many as these if they came one by one; null if not known.
    longest_burst: Count | None = None  # Most frames in one burst, of which few were missed also those nearly late; null as above.
    longest_row: Count = 0  # Most frames in a row that were dropped or late.
    jitter: Stage | None = None  # How far the time between two answers is from the time between their frames, either way.
    queue_max: Count = 0  # Most frames that waited at once.
    waiting: Stage | None = None  # Time from arrival to call of frames that waited for one before; null if none did.
    longest_gap_ms: float | None = None  # Longest time without a new answer in ms.
    first_missed_s: float | None = None  # Arrival of the first frame that was dropped or late, in s; null if there is none.
    first_missed_after_throttling_s: float | None = None
    """Time from the beginning of throttling (`sustained`) to the first such frame, in s; null without either, or below an interval."""


class Neighbour(RecordPart, frozen=True, kw_only=True):
    """A case that ran at the same time."""

    model: str  # Name of the model.
    sha256: str  # SHA-256 of its file.
    runtime: str  # Its runtime.
    threads: Count  # Its threads.
    cpus: tuple[Count, ...] | None = None  # Cores it was pinned to; null: any.

    @classmethod
    def of(cls, model: Model, runtime: RuntimeInfo, cpus: tuple[int, ...] | None) -> "Neighbour":
        """Return the case of a run with these facts."""
        return cls(model=model.name, sha256=model.sha256, runtime=runtime.name, threads=runtime.threads, cpus=cpus)

    @property
    def setting_text(self) -> str:
        """How it ran: `onnx 1T on core 0`."""
        cores = " and ".join(map(str, self.cpus or ()))
        return f"{self.runtime} {self.threads}T{f' on core {cores}' if cores else ''}"


class Together(RecordPart, frozen=True, kw_only=True):
    """A run at the same time as runs of other cases; every figure of it is over the overlap, in which all of them were timed."""

    neighbours: tuple[Neighbour, ...]  # The other cases.
    overlap_ms: float  # Length of the overlap in ms.
    slow_down_ratio: float | None = None
    """Mean latency by that of the same model alone in the same round; null without such a run. A median of short calls does not show that a
    core is shared."""
    energy_is_shared: bool = True  # Whether `energy` is that of all of them, by the inferences of this one.

    @property
    def names(self) -> str:
        """The models beside this one, in words: `detector and llm`."""
        return " and ".join(neighbour.model for neighbour in self.neighbours)

    @property
    def words(self) -> str:
        """The company in words: `beside llm (llama 1T on core 0): mean 1.98 times that alone in its round`."""
        company = ", ".join(f"{neighbour.model} ({neighbour.setting_text})" for neighbour in self.neighbours)
        ratio = self.slow_down_ratio
        return f"beside {company}" if ratio is None else f"beside {company}: mean {significant(ratio, 3)} times that alone in its round"


class CoolDown(RecordPart, frozen=True, kw_only=True):
    """The wait before the run for the machine to cool."""

    below_c: float  # Temperature in °C to wait for.
    waited_s: float  # Time waited in s.
    temperature_c: float | None  # Highest temperature of all sensors at the end of the wait, in °C; null if none can be read.
    is_reached: bool | None  # Whether the temperature was reached; null if none can be read.


class CurvePoint(RecordPart, frozen=True, kw_only=True):
    """One interval of a sustained run."""

    t_s: float  # Start of the interval in s.
    queries: Count  # Queries in the interval.
    p50_ms: float | None = None  # Median latency in ms.
    clock_hz: float | None = None  # Mean CPU clock in Hz.
    temperature_c: float | None = None  # Mean of the highest temperature in °C.
    power_w: float | None = None  # Mean power in W.
    tpot_ms: float | None = None  # Median time per output token in ms, of a language model.
    missed: Count | None = None  # Frames that arrived in the interval and had no answer by their deadline (scenario `steady`).


class Sustained(RecordPart, frozen=True, kw_only=True):
    """A long run over time."""

    interval_s: float  # Length of an interval in s.
    points: tuple[CurvePoint, ...]  # The intervals in order.
    level_p50_ms: float | None = None  # Median latency of the first minute in ms.
    level_clock_hz: float | None = None  # CPU clock of the first minute in Hz.
    throttled_after_s: float | None = None  # When latency or clock left the level of the first minute, in s; null if they never did.
    evidence: str | None = None  # The evidence of throttling.


class Memory(RecordPart, frozen=True, kw_only=True):
    """Resident memory of the run's process, or of the server that answered it."""

    peak_mb: float | None
    """The kernel's high-water mark at the end of the timed part, in MB; of a server since its start, of several processes added, less what
    they share; null where it is not seen."""
    before_load_mb: float | None = None  # Before the model was loaded, in MB; null of a server.
    loaded_mb: float | None = None  # After the model was loaded, in MB; null of a server.
    server: str | None = None  # Name of the server's process whose memory it is; null: the run's own.
    reason: str | None = None  # Why `peak_mb` is null.
    prepared_inputs_mb: float = 0.0  # Part of the peak that holds inputs the benchmark itself keeps ready, in MB.
    grown_mb: float | None = None  # Growth during the timed part, in MB, less what the benchmark itself keeps; null if not measured.
    thirds_mb: tuple[float, ...] = ()  # At the beginning, the two thirds and the end of the timed part, in MB; empty if not seen.


class UncertaintyTerm(RecordPart, frozen=True, kw_only=True):
    """One line of the uncertainty budget of the gross energy per inference."""

    term: str  # Name of the contribution.
    u_mj: float | None  # Standard uncertainty (k = 1) in mJ; null if unknown.
    degrees_of_freedom: float | None = None
    """Degrees of freedom of the scatter it was estimated from; null if it does not come from scatter."""


AveragingSource = Literal["published", "driver", "estimated", "self-test"]


class Averaging(RecordPart, frozen=True, kw_only=True):
    """How a sensor's readings follow the power; what is unknown is null."""

    window_s: float | None = None  # Length in s that a reading is the mean of; 0: it is of a moment.
    lag_s: float | None = None  # Mean delay in s of a reading behind the power, beyond half of the window.
    update_interval_s: float | None = None  # Time in s from one value of the sensor to the next, by its own clock.
    seen_ratio: float | None = None  # Share of the time that the sensor looks at the power.
    sources: dict[str, AveragingSource] = {}
    """Where each of these is from: published by the maker or in a paper, read from the driver, estimated, measured by a self-test."""


class Energy(RecordPart, frozen=True, kw_only=True):
    """Energy per inference from one sensor. An unknown uncertainty is null: it is not zero."""

    sensor: str  # Id of the power sensor.
    scope: Scope  # Part of the machine that the sensor sees.
    excludes: tuple[str, ...]  # Consumers that the scope leaves out.
    gross_mj: float  # Energy per inference in mJ, everything the sensor sees.
    gross_u_mj: float | None  # Expanded uncertainty (95%) of `gross_mj` in mJ; null if a term of the budget is unknown.
    net_mj: float | None  # Energy per inference above idle power, in mJ.
    net_u_mj: float | None  # Expanded uncertainty (95%) of `net_mj` in mJ; null if a term of the budget is unknown.
    net_state: Literal["resolved", "not_resolvable", "no_idle"]
    """Whether the net energy stands out from the uncertainty of idle power; `no_idle`: idle power was not measured."""
    mean_power_w: float  # Mean power over the timed part in W.
    idle_before_w: float | None  # Mean idle power before the timed part in W.
    idle_after_w: float | None  # Mean idle power after the timed part in W.
    inferences: Count  # Inferences in the timed part.
    window_ms: float  # Length of the timed part in ms, without random pauses; of a language model's queries one by one that of the queries.
    samples: Count  # Power readings in the timed part.
    period_ms: float  # Sampling period in ms.
    resolution_w: float | None  # Step of a power reading in W; null if unknown.
    longest_gap_ms: float  # Longest time between two readings in ms.
    budget: tuple[UncertaintyTerm, ...] = ()  # The uncertainty budget of the gross energy.
    gross_k: float | None = None  # Coverage factor of `gross_u_mj`: 2, or more where it rests on little scatter.
    net_k: float | None = None  # Coverage factor of `net_u_mj`: 2, or more where it rests on little scatter.
    interval_reason: str | None = None  # Why an uncertainty is unknown, with the remedy; null where both are known.
    resolving_window_s: float | None = None
    """Length in s of both idle and timed part that would resolve the net energy; null if none of up to a day would."""
    sufficient_window_s: float | None = None
    """Length in s from which on the gross energy is off by less than 1% on average; null if none suffices."""
    follows_queries: bool = False  # Whether the phase of the queries was taken out of the readings.
    delay_s: float | None = None
    """Mean delay in s of the sensor, estimated from how its readings rise and fall; null if they do not show it."""
    renewed_s: float | None = None
    """Time in s from one value of the sensor to the next, estimated from readings that repeat; null if none do."""
    between_ms: float | None = None  # Time between the queries of a language model in ms, whose energy is left out; null of other runs.

    @property
    def mean_power_u_w(self) -> float | None:
        """Expanded uncertainty (95%) of `mean_power_w` in W: as large a share of it as of the energy, since the time is exact."""
        if self.gross_u_mj is None or not self.gross_mj:
            return None
        return self.gross_u_mj * abs(self.mean_power_w / self.gross_mj)


class Stretch(RecordPart, frozen=True, kw_only=True):
    """A stretch of the monotonic clock, counted from the first timed query; negative before it."""

    start_ns: Int64  # Start in ns.
    end_ns: Int64  # End in ns.


class Windows(RecordPart, frozen=True, kw_only=True):
    """When the parts of the run took place."""

    timed_start_ns: TimeNs  # Monotonic clock at the first timed query, in ns; everything else counts from it.
    timed_end_ns: TimeNs  # End of the timed part in ns.
    idle_before: Stretch | None = None  # Idle stretch before the timed part.
    idle_after: Stretch | None = None  # Idle stretch after the timed part.


class PowerTrace(RecordPart, frozen=True, kw_only=True):
    """One power sensor's description; its readings are the series `power.NAME` (or `energy.NAME`) and `power_at.NAME`."""

    name: str  # Name of the sensor in the configuration.
    failures: Count = 0  # Readings that failed.
    failure: str | None = None  # Why the last of them failed; null if none did.
    ended: str | None = None  # Why reading ended early; null if it did not.
    sensor: str | None = None  # Id of the sensor; null, with all that follows, if the sensor never described itself.
    scope: Scope | None = None  # Part of the machine that the sensor sees.
    excludes: tuple[str, ...] = ()  # Consumers that the scope leaves out.
    kind: Literal["power", "energy"] | None = None  # Whether the sensor reads power or counts energy.
    period_ms: float | None = None  # Sampling period in ms.
    resolution_w: float | None = None  # Step of a power reading in W.
    resolution_mj: float | None = None  # Step of an energy counter in mJ.
    gain_u_ratio: float | None = None  # Relative standard uncertainty of the gain (k = 1); null if unknown.
    warnings: tuple[str, ...] = ()  # Reasons to doubt the readings.
    blocked: str | None = None  # Why no energy may be reported from the sensor as it is set up; null if it may.
    offset_u_w: float | None = None  # Standard uncertainty of the zero in W; null if unknown.
    averaging: Averaging | None = None  # How the readings follow the power; null if nothing is known of it.
    self_tested_at: str | None = None  # When the self-test was made that completes the description, in UTC; null if none does.
