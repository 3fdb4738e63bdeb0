"""The record: what is published of one run, and the contract between agent and collector.

Every field with a dimension ends in its unit (`_ms`, `_w`, `_mj`, `_mb`, `_c`, `_hz`, `_ns`); W x ms = mJ. Absent is null.
Unknown fields are tolerated when a record is read, so that an older collector keeps what a newer agent adds; a record with
a higher `schema` number is refused, because its meaning may have changed.
"""

import math
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.errors import ConfigError

SCHEMA = 1
# The share of a reference's accuracy that a model must keep for its speed to count, where nobody asked for another; see `engine.gate`.
GATE_RATIO = 0.9

# `replayed`: played back from a recording by the replay runtime or sensor; true of the recording, not of this run.
Provenance = Literal["measured", "replayed", "estimated", "published"]
Role = Literal["device", "reference"]
# Who set `started_at_ns`: the device's clock at the run; the device, computed once its clock was synchronised; or the collector, which
# knows only when the record came.
StampedBy = Literal["device", "device-later", "collector"]
Scope = Literal["soc-rails", "module", "board-input", "wall-ac", "gpu-board", "cpu-package"]
VerdictState = Literal["valid", "suspect", "invalid"]

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
# A name becomes an MQTT topic level and an InfluxDB tag: neither may hold a separator, a wildcard or a control character.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@-]*\Z")]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A group of fields of the record."""


class Model(_Part, frozen=True, kw_only=True):
    """What was run. `name` is shared by all formats and precisions of one model."""

    name: Name
    sha256: Sha256
    file: str
    format: str
    size_bytes: Count
    task: str
    family: str


class Runtime(_Part, frozen=True, kw_only=True):
    """What ran it: our name, the package and version that did the work, and the backend inside it.

    `facts` is what else a runtime tells of how it ran: the clock of an Edge TPU, how many operators were on it.
    """

    name: str
    package: str
    version: str
    backend: str
    threads: Annotated[int, msgspec.Meta(ge=1)]
    options: dict[str, str] = {}
    facts: dict[str, str] = {}


class Tensor(_Part, frozen=True, kw_only=True):
    """One input or output. `scale` and `zero_point` are those of the model; null where it is not quantised."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class Subset(_Part, frozen=True, kw_only=True):
    """Which part of the data was used: `images` of `drawn_from`, chosen by `method` with `seed`; the same ones on every machine."""

    images: Count
    drawn_from: Count
    seed: int
    method: str


class Dataset(_Part, frozen=True, kw_only=True):
    """The images and their ground truth; `sha256` covers both."""

    name: str
    sha256: Sha256
    images: Count
    annotated: bool
    subset: Subset | None = None


class Latency(_Part, frozen=True, kw_only=True):
    """Inference latency over the timed queries.

    A percentile is null when too few queries support it; `refused` then names the number of queries it needs. `_low`/`_high`
    are distribution-free 95 % bounds from order statistics. `early_stopping_ms` is MLPerf's estimate per percentile.
    """

    count: Count
    mean_ms: float
    min_ms: float
    max_ms: float
    sd_ms: float
    p50_ms: float | None = None
    p50_low_ms: float | None = None
    p50_high_ms: float | None = None
    p90_ms: float | None = None
    p90_low_ms: float | None = None
    p90_high_ms: float | None = None
    p95_ms: float | None = None
    p95_low_ms: float | None = None
    p95_high_ms: float | None = None
    p99_ms: float | None = None
    p99_low_ms: float | None = None
    p99_high_ms: float | None = None
    p99_9_ms: float | None = None
    p99_9_low_ms: float | None = None
    p99_9_high_ms: float | None = None
    early_stopping_ms: dict[str, float] = {}
    refused: dict[str, int] = {}


class Stage(_Part, frozen=True, kw_only=True):
    """Time of one step around the inference (pre-processing or post-processing) over the accuracy pass."""

    count: Count
    mean_ms: float
    p50_ms: float
    p90_ms: float


class ColdStart(_Part, frozen=True, kw_only=True):
    """Time from nothing to the first answer, in the run's own fresh process."""

    process_ms: float | None
    import_ms: float
    load_ms: float
    first_ms: float


class WarmUp(_Part, frozen=True, kw_only=True):
    """Queries run before timing; `steady` is false when the running median never settled."""

    queries: Count
    duration_ms: float
    steady: bool


class Load(_Part, frozen=True, kw_only=True):
    """What was asked of the model: `samples` in all, and of an open loop (`poisson`) the rates and what waiting cost.

    Queueing passes from the scheduled arrival to the call, service is the call; latency is both. `utilisation_ratio` is the share of
    the time in which a query was being worked on: from 1 on the rate cannot be sustained. `unserved` arrivals were given up on.
    """

    samples_per_query: Annotated[int, msgspec.Meta(ge=1)]
    calls_per_query: Annotated[int, msgspec.Meta(ge=1)] = 1
    samples: Count
    target_per_s: float | None = None
    achieved_per_s: float | None = None
    utilisation_ratio: float | None = None
    is_sustained: bool | None = None
    unserved: Count = 0
    queueing: Stage | None = None
    service: Stage | None = None


class CoolDown(_Part, frozen=True, kw_only=True):
    """The wait before the run for the machine to cool; `temperature_c` is the highest of all sensors at its end, null: none can be read."""

    below_c: float
    waited_s: float
    temperature_c: float | None
    is_reached: bool | None


class CurvePoint(_Part, frozen=True, kw_only=True):
    """One interval of a sustained run, which begins at `t_s`: the median latency, and the means of what was read beside it."""

    t_s: float
    queries: Count
    p50_ms: float | None = None
    clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


class Sustained(_Part, frozen=True, kw_only=True):
    """A long run over time. `throttled_after_s` is when latency or clock left the level of the first minute, null: they never did."""

    interval_s: float
    points: tuple[CurvePoint, ...]
    level_p50_ms: float | None = None
    level_clock_hz: float | None = None
    throttled_after_s: float | None = None
    evidence: str | None = None


class Memory(_Part, frozen=True, kw_only=True):
    """Resident memory of the run's process; the peak is the kernel's own high-water mark at the end of the timed part.

    `prepared_inputs_mb` of it are inputs that the benchmark itself keeps ready.
    """

    peak_mb: float
    before_load_mb: float
    loaded_mb: float
    prepared_inputs_mb: float = 0.0


class UncertaintyTerm(_Part, frozen=True, kw_only=True):
    """One line of the uncertainty budget: a standard uncertainty (k = 1) of the gross energy per inference.

    `degrees_of_freedom` is on how much scatter it was estimated, null: it does not come from scatter.
    """

    term: str
    u_mj: float | None
    degrees_of_freedom: float | None = None


class Energy(_Part, frozen=True, kw_only=True):
    """Energy per inference from one sensor.

    `gross_mj` is all that the sensor saw; `net_mj` has the idle power taken off. `*_u_mj` are expanded uncertainties (95 %), null when
    a term of the budget is not known: an unknown uncertainty is not zero. `gross_k` and `net_k` are what they were expanded by: 2, or
    more where little scatter was seen. Where net energy is not resolvable, `resolving_window_s` is how long both the idle stretches and
    the timed part would have to be, null: no length would do. From `sufficient_window_s` on the gross energy is off by less than 1 %
    on average, as far as the budget is known, null: no length would do. `follows_queries` is whether the phase of the queries was
    taken out of the readings. `is_modelled` marks a scope that a model made out of a narrower one: an estimate.
    """

    sensor: str
    scope: Scope
    excludes: tuple[str, ...]
    gross_mj: float
    gross_u_mj: float | None
    net_mj: float | None
    net_u_mj: float | None
    net_state: Literal["resolved", "not_resolvable", "no_idle"]
    mean_power_w: float
    idle_before_w: float | None
    idle_after_w: float | None
    inferences: Count
    window_ms: float
    samples: Count
    period_ms: float
    resolution_w: float | None
    longest_gap_ms: float
    budget: tuple[UncertaintyTerm, ...] = ()
    gross_k: float | None = None
    net_k: float | None = None
    resolving_window_s: float | None = None
    sufficient_window_s: float | None = None
    follows_queries: bool = False
    is_modelled: bool = False


class Stretch(_Part, frozen=True, kw_only=True):
    """A stretch of the monotonic clock, counted from the first timed query: negative before it."""

    start_ns: int
    end_ns: int


class Windows(_Part, frozen=True, kw_only=True):
    """When the parts of the run were: the monotonic clock at the first timed query, the rest counted from there."""

    timed_start_ns: int
    timed_end_ns: int
    idle_before: Stretch | None = None
    idle_after: Stretch | None = None


class PowerTrace(_Part, frozen=True, kw_only=True):
    """What one power sensor said of itself; its readings are the series `power.NAME` (or `energy.NAME`) and `power_at.NAME`.

    `sensor` and what follows it are null when the sensor never described itself. `ended` is why it stopped before it was told to,
    `blocked` why no energy may be given from it as it was set up. `offset_u_w` and `valid_w` (from, to) are what its calibration says;
    `is_modelled` marks a scope that was modelled from a narrower one.
    """

    name: str
    failures: Count = 0
    ended: str | None = None
    sensor: str | None = None
    scope: Scope | None = None
    excludes: tuple[str, ...] = ()
    kind: Literal["power", "energy"] | None = None
    period_ms: float | None = None
    resolution_w: float | None = None
    resolution_mj: float | None = None
    gain_u_ratio: float | None = None
    warnings: tuple[str, ...] = ()
    blocked: str | None = None
    offset_u_w: float | None = None
    valid_w: tuple[float, float] | None = None
    is_modelled: bool = False


class PartAccuracy(_Part, frozen=True, kw_only=True):
    """Accuracy over a part of the data: a class, the images with so many objects, a group. Null: nothing to find there, or too little.

    `objects` is null where answers are not objects. `low` and `high` bound the value, 95 %.
    """

    name: str
    value: float | None
    images: Count
    objects: Count | None = None
    low: float | None = None
    high: float | None = None


class GroupGap(_Part, frozen=True, kw_only=True):
    """The largest difference between two groups; the bounds (95 %) hold for all pairs together, because the largest was picked."""

    best: str
    worst: str
    value: float
    low: float | None
    high: float | None


class Corruption(_Part, frozen=True, kw_only=True):
    """Accuracy on the photographs corrupted in one way, at the severities 1 to 5."""

    name: str
    values: tuple[float | None, ...]


class Robustness(_Part, frozen=True, kw_only=True):
    """Accuracy on corrupted photographs: the mean over all corruptions and severities, and how far below the clean value it is."""

    seed: int
    mean_value: float | None
    drop_value: float | None
    corruptions: tuple[Corruption, ...]


class Accuracy(_Part, frozen=True, kw_only=True):
    """Accuracy of the outputs of this run's model, over `images` images.

    `low` and `high` bound the value (95 %) as `interval` says; null where that was not computed. `group_metric` is what `groups` and
    their gap hold, which is not always `metric`. `warnings` count what in the ground truth is odd, and how it was taken.
    """

    metric: str
    value: float
    images: Count
    dataset_sha256: Sha256
    detail: dict[str, float | None] = {}
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    per_class: tuple[PartAccuracy, ...] = ()
    by_objects: tuple[PartAccuracy, ...] = ()
    group_metric: str | None = None
    groups: tuple[PartAccuracy, ...] = ()
    group_gap: GroupGap | None = None
    robustness: Robustness | None = None
    warnings: tuple[str, ...] = ()


class OutputCheck(_Part, frozen=True, kw_only=True):
    """Outputs kept during the timed part against the outputs for the same inputs afterwards (the intent of MLPerf's TEST01).

    `worst_ratio` is the largest difference of a value, relative to the largest value of its tensor, over the outputs that can be
    subtracted. `differing` are those that are not the same answer: other values, another shape, or a NaN on one side only.
    """

    compared: Count
    identical: Count
    worst_ratio: float | None
    differing: Count = 0


class Answers(_Part, frozen=True, kw_only=True):
    """What the outputs of the pass after timing look like, before anybody asks whether they are right.

    `alike` are the inputs that got the first one's answer, bit by bit, though they differ from it; `not_finite` those whose answer holds
    NaN or infinity. The rest is of photographs that a detector looked at, null otherwise: `objects` in their ground truth, `found` (boxes
    above the card's threshold), the highest score of one, and how many different scores there are.
    """

    inputs: Count
    alike: Count
    not_finite: Count
    objects: Count | None = None
    found: Count | None = None
    highest_score: float | None = None
    distinct_scores: Count | None = None


class Agreement(_Part, frozen=True, kw_only=True):
    """The outputs of timed queries against those of a reference: other kernels running the same model on the same inputs.

    Values are real values (dequantised). `largest_difference` is the largest difference of two values, `lowest_cosine` the lowest cosine
    of two tensors; null where no two tensors could be compared. `same_answer_ratio` compares what is found: of a detector the share of
    boxes that both have, of a classifier the share of inputs with the same best class.
    """

    reference: str
    inputs: Count
    largest_difference: float | None
    largest_difference_ratio: float | None
    lowest_cosine: float | None
    same_answer_ratio: Ratio | None


class AccuracyGate(_Part, frozen=True, kw_only=True):
    """The accuracy that the run had to reach for its speed to count: `needed_value` is `ratio` times the reference's value."""

    metric: str
    value: float
    reference_value: float
    ratio: Ratio
    needed_value: float
    source: Literal["suite", "card"]
    passed: bool


class Environment(_Part, frozen=True, kw_only=True):
    """What stood around the run; null where the machine does not tell."""

    board: str | None
    soc: str | None
    arch: str
    cpu: str | None
    cores: int
    os: str | None
    kernel: str
    firmware: str | None
    governor: str | None
    power_mode: str | None
    memory_mb: float | None
    swap_used_mb: float | None
    python: str
    agent: str
    boot_id: str | None
    libraries: dict[str, str] = {}
    attached: tuple[str, ...] = ()
    # The container or hypervisor that it ran in, innermost first: `docker`, `kvm`, `docker in kvm`; null: nothing shows one.
    virtualisation: str | None = None


class OtherProcess(_Part, frozen=True, kw_only=True):
    """Processes of one name that were not measured: the kernel's short name, the busiest's pid, and their share of all cores' time."""

    name: str
    pid: int
    load_ratio: float
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


class Condition(_Part, frozen=True, kw_only=True):
    """One look at the machine before or after the timed part; `during` sums up several.

    It holds the highest temperatures, the median clock, every flag that was ever up, the least memory, and the load over
    `load_window_ms` up to the end of the timed part: of processes that are neither measured nor the agent, and of the agent.
    """

    when: Literal["before", "during", "after"]
    temperatures_c: dict[str, float] = {}
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    throttled_now: bool | None = None
    throttled_since_boot: bool | None = None
    under_voltage_now: bool | None = None
    under_voltage_since_boot: bool | None = None
    other_load_ratio: float | None = None
    steal_ratio: float | None = None
    swap_used_mb: float | None = None
    load_window_ms: float | None = None
    agent_load_ratio: float | None = None
    busiest_other: OtherProcess | None = None
    memory_available_mb: float | None = None
    governor: str | None = None
    power_mode: str | None = None
    gpu_clock_hz: float | None = None
    gpu_clock_max_hz: float | None = None
    # Where throttling or shutting down begins, by the same names as the temperatures.
    temperature_limits_c: dict[str, float] = {}
    # As a Raspberry Pi's firmware gives them: bits 0..3 now, 16..19 since boot.
    throttle_flags: Count | None = None
    # Counters since boot, by name: `oc1`..`oc3` of a Jetson, `core` of x86.
    throttle_events: dict[str, Count] = {}
    # What the kernel still has to correct, and its bound on the wall clock's error.
    clock_synchronised: bool | None = None
    clock_offset_ms: float | None = None
    clock_error_ms: float | None = None
    attached: tuple[str, ...] = ()


class Scheduling(_Part, frozen=True, kw_only=True):
    """How the kernel scheduled the measured process while queries were timed: all its threads together.

    `waited_ms` is the time in which a thread could have run and no core was free. `cores` is how many it may use.
    """

    window_ms: float
    ran_ms: float | None = None
    waited_ms: float | None = None
    preemptions: Count | None = None
    cores: Annotated[int, msgspec.Meta(ge=1)] = 1


class ObserverEffect(_Part, frozen=True, kw_only=True):
    """What power and condition sampling adds to p50 on this machine, by `edgemeter calibrate observer`; bounds are 95 % over pairs."""

    effect_ratio: float
    low_ratio: float
    high_ratio: float
    pairs: Annotated[int, msgspec.Meta(ge=2)]
    measured_at_ns: int
    case: str
    p50_ms: float
    sensors: tuple[str, ...] = ()


class Verdict(_Part, frozen=True, kw_only=True):
    """Whether to believe the run. Each reason is `rule: evidence`; notes, of the same form, are worth knowing and cast no doubt."""

    state: VerdictState
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Series(_Part, frozen=True, kw_only=True):
    """Raw samples: little-endian numbers of `dtype`, zlib-compressed, base64."""

    name: str
    unit: str
    dtype: Literal["<u4", "<i8", "<f8"]
    count: Count
    data: str


class RunRecord(_Part, frozen=True, kw_only=True):
    """One measurement of one case in one process."""

    schema: int = SCHEMA
    id: str
    device: Name
    fleet: Name
    role: Role
    # Given by the outbox: (device, session, seq) names the record for ever; null when it never went through one.
    session: int | None = None
    seq: int | None = None
    started_at_ns: int
    clock_synchronised: bool | None
    monotonic_ns: int
    stamped_by: StampedBy = "device"

    suite: str | None
    case: str
    repeat: Count
    scenario: str
    mode: str
    seed: int
    model: Model
    runtime: Runtime
    precision: str
    batch: Annotated[int, msgspec.Meta(ge=1)]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    dataset: Dataset

    latency: Latency
    throughput_per_s: float
    preprocess: Stage | None
    postprocess: Stage | None
    cold_start: ColdStart
    warm_up: WarmUp
    memory: Memory
    energy: Energy | None
    energy_reason: str | None
    # Of several sensors `energy` is that of the widest scope; these are the others, and why some gave none.
    other_energies: tuple[Energy, ...] = ()
    other_energy_reasons: tuple[str, ...] = ()
    accuracy: Accuracy | None
    accuracy_reason: str | None
    output_check: OutputCheck
    environment: Environment
    conditions: tuple[Condition, ...]
    scheduling: Scheduling | None = None
    observer: ObserverEffect | None = None
    verdict: Verdict
    provenance: dict[str, Provenance]
    # With these and the series of the readings, the energy can be computed again.
    windows: Windows | None = None
    power_traces: tuple[PowerTrace, ...] = ()
    answers: Answers | None = None
    agreement: Agreement | None = None
    agreement_reason: str | None = None
    accuracy_gate: AccuracyGate | None = None
    load: Load | None = None
    sustained: Sustained | None = None
    cool_down: CoolDown | None = None
    # The cores that the run was kept to, null: any.
    cpus: tuple[int, ...] | None = None
    # What shuffled the runs of the session, and which place in that order this run had (from 1).
    order_seed: int | None = None
    order_place: int | None = None
    samples: tuple[Series, ...] = ()
    # Why there are no raw samples, where there were some.
    samples_reason: str | None = None


class _SchemaOnly(msgspec.Struct):
    schema: int


_decoder = msgspec.json.Decoder(RunRecord)
_schema_decoder = msgspec.json.Decoder(_SchemaOnly)
_encoder = msgspec.json.Encoder()


def encode(record: RunRecord) -> bytes:
    """Return the record as JSON, as it travels and as it is kept."""
    return _encoder.encode(record)


def decode(payload: bytes) -> RunRecord:
    """Return the record that `payload` (JSON) holds.

    Raises:
        ConfigError: it is no record, or one of a newer schema than this version knows.
    """
    try:
        schema = _schema_decoder.decode(payload).schema
        if schema > SCHEMA:
            message = f"the record has schema {schema}, this edgemeter reads up to {SCHEMA}: update edgemeter here"
            raise ConfigError(message)
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a run record: {error}"
        raise ConfigError(message) from error


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record (draft 2020-12)."""
    schema = msgspec.json.schema(RunRecord)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Edgemeter run record", **schema}


def finite(value: float | None) -> float | None:
    """Return `value`, or None where it is not a finite number: NaN and infinity never enter a record."""
    return value if value is not None and math.isfinite(value) else None
