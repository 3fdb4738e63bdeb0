"""The page of one run: every figure of its record down to the raw samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base import number_text
from edgemeter.agent.base.documents import Plain, json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import metric_name, metric_words
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import LATENCY, THROUGHPUT, figure
from edgemeter.agent.contract.record import RunRecord, Series
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import Sustained
from edgemeter.agent.contract.record_generation import UNSTREAMED, Generation
from edgemeter.agent.contract.samples import unpack
from edgemeter.agent.contract.steady_facts import held_out, steady_facts
from edgemeter.agent.verdict.words import text_of
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import over_the_run, run_time_line
from edgemeter.collector.compare.summary import environment
from edgemeter.collector.show.comparison_charts import distribution_chart
from edgemeter.collector.web.queries import CaseFilter, ViewContext
from edgemeter.collector.web.view import View, ViewRequest

NS_MS, NS_S = 1e-6, 1e-9
# The pairs of figures that share a chart, left and right: field and title of each.
_PAIRS = (
    (("missed", "missed frames"), ("p50_ms", "p50, ms")),
    (("clock_mhz", "clock, MHz"), ("temperature_c", "temperature, °C")),
    (("power_w", "power, W"), ("tpot_ms", "time per output token, ms")),
)
# A chart has no more points than are visible; the extremes of each stretch are kept.
POINTS = 1600
LEVELS = (LATENCY, "latency_p90_ms", "latency_p99_ms")
# At most this many raw samples are written as plain numbers in one response.
SAMPLES_OUT = 2_000_000
Facts = dict[str, str | None]


def run_view(
    context: ViewContext,
    request: ViewRequest,
    case_filter: CaseFilter,  # noqa: ARG001 - every view has the same signature
) -> View:
    """Return the page of the run of that id; raises ConfigError if there is no such run."""
    name = request.get("id")
    runs = context.store.select("id = ?", name)
    if not runs:
        raise ConfigError(f"there is no run {name!r}")
    record, verdict = context.store.record(runs[-1].row, with_samples=True), runs[-1].verdict
    latencies = values_of(record, "latency")
    body = context.render(
        "run.html",
        record=record,
        verdict=verdict,
        text_of=text_of,
        figure=figure,
        time_line=_time_line(record, latencies) if latencies else None,
        distribution=distribution_chart(record, POINTS // 8),
        latency=_latency(record) | (_tokens(record.generation) if record.generation else {}),
        held_out=held_out,
        steady_facts={
            name.capitalize(): text for name, text in steady_facts(record, record.steady).items()
        }
        if record.steady
        else {},
        over_time=charts_of(record.sustained, of_frames=record.steady is not None)
        if record.sustained
        else [],
        energy_provenance=energy_provenance(record) or "not stated to be measured",
        accuracy=_accuracy(record),
        conditions=[
            (condition.when.capitalize(), facts_of(condition)) for condition in record.conditions
        ],
        machine=machine_facts(record),
        # Line by line, so that control characters are removed and line breaks stay.
        lines=json_document(msgspec.structs.replace(record, samples=())).split("\n"),
    )
    provenance = record.provenance.get("latency", "")
    label = (
        ""
        if provenance == "measured"
        else f" {provenance.capitalize()}: none of its figures was measured in this run."
    )
    p50 = number_text.significant(record.latency.p50_ms)
    lead = (
        f"{number_text.stamp(record.started_at_ns)} UTC: p50 {p50} ms over "
        f"{record.latency.count:,} queries, {verdict.state}.{label}"
    )
    return View(f"Run {record.id}", body, lead, _tables(record))


def _time_line(record: RunRecord, latencies: Sequence[float]) -> tuple[str, Chart]:
    """Return a heading, and latency and power on one time axis.

    Without the queries' times it is the latency alone, in order.
    """
    starts = values_of(record, "query_start") or ()
    has_moments = len(starts) == len(latencies)
    rows: list[dict[str, Any]] = [
        {
            "at_s": starts[index] * NS_S if has_moments else index + 1,
            "latency_ms": value,
            "power_w": None,
            "sensor": None,
            "query": index + 1,
        }
        for index, value in thinned([value * NS_MS for value in latencies], POINTS)
    ]
    if not has_moments:
        spec = run_time_line((), (), [row["latency_ms"] for row in rows], "query")
        return "Latency, query by query", Chart(
            "Latency of every query, in order", spec, rows_table(rows), kind="wide"
        )
    sensors = []
    for trace in record.power_traces:
        power, at_ns = (
            values_of(record, f"power.{trace.name}"),
            values_of(record, f"power_at.{trace.name}"),
        )
        # Without the times a reading has no position.
        if power and at_ns and len(power) == len(at_ns):
            sensors.append(trace.name)
            rows += [
                {
                    "at_s": at_ns[index] * NS_S,
                    "latency_ms": None,
                    "power_w": value,
                    "sensor": trace.name,
                    "query": None,
                }
                for index, value in thinned(power, POINTS)
            ]
    bands = _bands(record, (starts[-1] + latencies[-1]) * NS_S)
    spec = run_time_line(sensors, bands, [row["latency_ms"] for row in rows])
    shaded = {
        "idle (grey)" if str(band["name"]).startswith("idle") else "warm-up": None
        for band in bands
        if band["name"] != "timed"
    }
    text = (
        (
            f"Shaded: {' and '.join(shaded)}; the machine's conditions then are in "
            "the tooltip and below."
        )
        if shaded
        else ""
    )
    subject, title = (
        ("Latency and power", "Latency of every query, and power")
        if sensors
        else ("Latency", "Latency of every query")
    )
    return f"{subject}, query by query", Chart(title, spec, rows_table(rows), text, kind="wide")


def _bands(record: RunRecord, end_s: float) -> list[dict[str, Plain]]:
    """Return the stretches of a run in s since the first timed query.

    They are idle as recorded, and the preceding warm-up.
    """
    words: dict[str, str] = {
        condition.when: ", ".join(
            f"{name} {text}" for name, text in facts_of(condition).items() if text
        )
        for condition in record.conditions
    }
    windows, warm_s = record.windows, record.warm_up.duration_ms / 1000
    begin_s = windows.idle_before_ns[0] * NS_S if windows and windows.idle_before_ns else 0.0
    stretches: list[tuple[str, float, float, str]] = [
        ("timed", 0.0, end_s, words.get("during", ""))
    ]
    if warm_s > 0:
        stretches.append(
            (
                "warm-up",
                begin_s - warm_s,
                begin_s,
                "steady" if record.warm_up.steady else "never steady",
            )
        )
    for name, stretch_ns in (
        ("before", windows and windows.idle_before_ns),
        ("after", windows and windows.idle_after_ns),
    ):
        if stretch_ns:
            stretches.append(
                (f"idle {name}", stretch_ns[0] * NS_S, stretch_ns[1] * NS_S, words.get(name, ""))
            )
    return [
        {"name": name, "start": start, "end": end, "text": text or "not reported"}
        for name, start, end, text in stretches
    ]


def _latency(record: RunRecord) -> Facts:
    latency = record.latency
    facts: Facts = {}
    for entry in map(figure, LEVELS):
        value_ms = entry.value(record)
        facts[entry.title] = "too few queries" if value_ms is None else entry.text(value_ms)
    facts |= {
        "Mean": f"{number_text.significant(latency.mean_ms)} ms",
        "Highest": f"{number_text.significant(latency.max_ms)} ms",
        "Throughput": figure(THROUGHPUT).text(record.throughput_per_s),
        "Warm-up": (
            f"{number_text.significant(record.warm_up.duration_ms / 1000)} s, "
            f"{'steady' if record.warm_up.steady else 'never steady'}"
        ),
    }
    if no_times := record.reasons.get(UNSTREAMED):
        facts["No times of tokens"] = no_times
    if record.load and record.load.failures:
        facts["Failed queries"] = ", ".join(
            f"{count:,} {kind}" for kind, count in record.load.failures.items()
        )
    return facts


def _tokens(generation: Generation) -> Facts:
    ttft, tpot, itl = generation.ttft, generation.tpot, generation.itl
    times = {"TTFT, p50": ttft, "TPOT, p50": tpot, "Inter-token latency, p50": itl}
    lengths = generation.output_lengths
    shorter = ""
    if generation.ended_early and lengths:
        shorter = (
            f" at most ({lengths.min_tokens:,} to {lengths.max_tokens:,}, mean "
            f"{lengths.mean_tokens:.4g})"
        )
    drafted = (
        ""
        if generation.accepted_ratio is None
        else f"{generation.accepted_ratio:.0%} of the drafted tokens accepted"
    )
    return {
        "Prompts": generation.prompts_sha256
        and f"{generation.prompts} (sha256 {generation.prompts_sha256[:12]})",
        "Tokens": f"{generation.lengths} (prompt + generated){shorter}",
        "Speculation": ": ".join(filter(None, (generation.speculative, drafted))) or None,
        **{
            name: f"{number_text.significant(rate)} t/s"
            for name, rate in {
                f"pp {generation.prompt_tokens}": generation.prefill_tokens_per_s,
                f"tg {generation.output_tokens}": generation.decode_tokens_per_s,
            }.items()
            if rate is not None
        },
        **{
            name: f"{number_text.significant(p50_ms)} ms"
            for name, time in times.items()
            if time and (p50_ms := time.p50_ms) is not None
        },
    }


def _accuracy(record: RunRecord) -> Facts | None:
    accuracy = record.accuracy
    if accuracy is None:
        return None
    bounds = f", no bounds: {accuracy.interval_reason}" if accuracy.interval_reason else ""
    if accuracy.low is not None:
        bounds = (
            f", {number_text.accuracy(accuracy.low)} to {number_text.accuracy(accuracy.high)} (95%)"
        )
    facts: Facts = {
        metric_name(accuracy.metric): (
            f"{number_text.accuracy(accuracy.value)} over "
            f"{number_text.count(accuracy.images, 'image')}{bounds}"
        )
    }
    facts |= {
        metric_words(name): number_text.accuracy(value)
        for name, value in accuracy.detail.items()
        if value is not None
    }
    if accuracy.needed_value is not None:
        facts["Gate"] = (
            f"{'passed' if accuracy.passes_gate else 'not passed'}: needed "
            f"{number_text.accuracy(accuracy.needed_value)}"
        )
    return facts


def _tables(record: RunRecord) -> tuple[ViewTable, ...]:
    rows: list[tuple[str, str, int, float]] = []
    for series in record.samples:
        values = finite_values(series)
        if values is not None and len(rows) + len(values) <= SAMPLES_OUT:
            rows += [(series.name, series.unit, index, value) for index, value in enumerate(values)]
    document = msgspec.to_builtins(msgspec.structs.replace(record, samples=()))
    return ViewTable("samples", ("series", "unit", "index", "value"), tuple(rows)), ViewTable(
        "record", ("field", "value"), tuple((name, value) for name, value in _flat("", document))
    )


def _flat(name: str, value: object) -> list[tuple[str, str | int | float | bool | None]]:
    if isinstance(value, dict):
        return [
            pair
            for key, part in value.items()
            for pair in _flat(f"{name}.{key}" if name else str(key), part)
        ]
    if isinstance(value, list | tuple):
        return [pair for index, part in enumerate(value) for pair in _flat(f"{name}.{index}", part)]
    return [
        (
            name,
            value if isinstance(value, str | int | float | bool) or value is None else str(value),
        )
    ]


def charts_of(sustained: Sustained, *, of_frames: bool) -> list[Chart]:
    """Return the charts of the intervals of a long run.

    They show missed frames and latency, clock and temperature, and power.
    """
    if len(sustained.points) < 2:
        return []
    rows: list[dict[str, Any]] = [
        {
            "at_s": number * sustained.interval_s, "end_s": (number + 1) * sustained.interval_s,
            "missed": point.missed,
            "p50_ms": point.p50_ms,
            "clock_mhz": None if point.clock_hz is None else point.clock_hz / 1e6,
            "temperature_c": point.temperature_c,
            "power_w": point.power_w, "tpot_ms": point.tpot_ms,
        }
        for number, point in enumerate(sustained.points)
    ]  # fmt: skip
    charts = []
    for pair in _PAIRS:
        present = [
            (field, title) for field, title in pair if any(row[field] is not None for row in rows)
        ]
        if not present:
            continue
        # For frames, the p50 is the model's time without the wait in the queue.
        named = [
            (field, "model's own time p50, ms" if of_frames and field == "p50_ms" else title)
            for field, title in present
        ]
        spec = over_the_run(
            named[0],
            named[1] if named[1:] else None,
            sustained.throttled_after_s,
            has_bars=named[0][0] == "missed",
        )
        title = " and ".join(title.partition(",")[0] for _, title in named)
        columns = ("at_s", "end_s", *(field for field, _ in named))
        charts.append(
            Chart(
                f"{title[0].upper()}{title[1:]}",
                spec,
                rows_table([{name: row[name] for name in columns} for row in rows]),
                kind="wide",
            )
        )
    return charts


def values_of(record: RunRecord, name: str) -> Sequence[float] | None:
    """Return the finite samples of a series, None if it was not stored or is damaged."""
    matching = next((series for series in record.samples if series.name == name), None)
    return None if matching is None else finite_values(matching)


def finite_values(series: Series) -> list[float] | None:
    """Return the finite samples of a series, None if it is damaged."""
    try:
        values = unpack(series)
    except ConfigError:
        return None
    finite: list[float] = values[np.isfinite(values.astype(np.float64))].tolist()
    return finite


def thinned(values: Sequence[float], limit: int) -> list[tuple[int, float]]:
    """Return at most about `limit` values with their indexes.

    They are the smallest and the largest of each stretch, so that no outlier is lost.
    """
    if len(values) <= limit:
        return list(enumerate(values))
    step = -(-2 * len(values) // limit)
    indices: set[int] = set()
    for start in range(0, len(values), step):
        places = range(start, min(start + step, len(values)))
        indices |= {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
    return [(index, values[index]) for index in sorted(indices)]


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{number_text.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(
        f"{name} {number_text.significant(value)}{unit}" for name, value in values.items()
    )


def _process(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name}, {_share(ratio)} of all cores" for name, ratio in shares.items())


# By the record's name: the label, and the format of its value.
FIELDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "temperatures_c": ("Temperature", _each(" °C")),
    "clock_hz": ("Clock", _in("MHz", 1e6)),
    "clock_max_hz": ("Highest clock allowed", _in("MHz", 1e6)),
    "throttled_now": ("Throttled", _yes_or_no),
    "throttled_since_boot": ("Throttled since boot", _yes_or_no),
    "under_voltage_now": ("Under-voltage", _yes_or_no),
    "under_voltage_since_boot": ("Under-voltage since boot", _yes_or_no),
    "other_load_ratio": ("Load of other processes", _share),
    "steal_ratio": ("Time taken by other guests", _share),
    "swap_used_mb": ("Swap in use", _in("MB")),
    "served_load_ratio": ("Load of the measured server", _share),
    "busiest_other": ("Busiest other process", _process),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "throttle_events": ("Throttle events since boot", _each()),
}


def facts_of(condition: Condition) -> Facts:
    """Return the readings of the machine, by name."""
    names = (name for name in condition.__struct_fields__ if name != "when")
    values = {
        name: value for name in names if (value := getattr(condition, name)) not in (None, {}, ())
    }
    return {
        called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]
    }


def machine_facts(run: RunRecord) -> Facts:

    def reported(*fields: str) -> str | None:
        return (
            " ".join(text for field in fields if (text := environment([run.environment], field)))
            or None
        )

    return {
        "Board": reported("board"),
        "Processor": reported("cpu"),
        "Cores": reported("cores"),
        "System": reported("os"),
        "Kernel": reported("kernel", "arch"),
        "Firmware": reported("firmware"),
        "Governor": reported("governor"),
        "Power mode": reported("power_mode"),
        "Virtualisation": reported("virtualisation"),
        "Attached": reported("attached"),
        "Agent": reported("agent"),
        "Libraries": ", ".join(
            f"{name} {version}" for name, version in run.environment.libraries.items()
        )
        or None,
    }
