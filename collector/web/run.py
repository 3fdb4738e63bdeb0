"""The page of one run: every figure of its record down to the raw samples, the energy budget and the machine's conditions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord, Series
from edgemeter.agent.contract.record_conditions import Condition, OtherProcess
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.samples import unpack
from edgemeter.collector.show import drawing, plot
from edgemeter.collector.show.drawing import ChartFrame, linear_axis
from edgemeter.collector.show.markup import Attributes, Markup, element, join, part
from edgemeter.collector.show.report import machine_facts
from edgemeter.collector.show.wording import metric_name
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.queries import CaseFilter, run_of
from edgemeter.collector.web.view import View, ViewRequest, ViewTable, link, note, section

LINE, TOP, LEFT, RIGHT = 26.0, 8.0, 10.0, drawing.WIDTH - 12.0


def energy_budget(run: RunRecord) -> Markup:
    """Return gross and net energy with scope and sensor, and the terms as bars."""
    energy = run.energy
    if energy is None:
        return element("p", {"class": "note"}, f"No energy: {run.energy_reason or 'not measured'}.")
    provenance = energy_provenance(run) or "not stated to be measured"
    label = "" if provenance == "measured" else f" ({provenance})"
    gross = f"{figures.with_uncertainty(energy.gross_mj, energy.gross_u_mj)} mJ gross{label}"
    excludes = f"; leaves out {', '.join(energy.excludes)}" if energy.excludes else ""
    scope = (
        f"{energy.sensor} at {energy.scope}{excludes}; {energy.samples:,} readings over {figures.significant(energy.window_ms / 1000)} s"
    )
    lines = [
        element("p", {"class": "figure-line"}, element("b", None, gross), f", {_net(energy)}"),
        element("p", {"class": "note"}, scope + "."),
    ]
    return join([*lines, _bars(energy)])


def _net(energy: Energy) -> str:
    if energy.net_mj is None:
        return f"net {energy.net_state.replace('_', ' ')}"
    return f"{figures.with_uncertainty(energy.net_mj, energy.net_u_mj)} mJ net of idle"


def _bars(energy: Energy) -> Markup:
    known = sorted(((term.u_mj, term) for term in energy.budget if term.u_mj is not None), key=lambda pair: -pair[0])
    unknown = [term.term for term in energy.budget if term.u_mj is None]
    parts: list[Markup] = []
    if known:
        bottom = TOP + LINE * len(known)
        frame = ChartFrame(LEFT, TOP, RIGHT, bottom)
        axis = linear_axis(0.0, known[0][0] * 1.05 or 1.0, LEFT, RIGHT)
        drawn = drawing.across(frame, axis, "Standard uncertainty of the gross energy, mJ")
        for index, (u_mj, term) in enumerate(known):
            y = TOP + index * LINE
            freedom = "" if term.degrees_of_freedom is None else f", {figures.significant(term.degrees_of_freedom, 2)} degrees of freedom"
            box: Attributes = {"x": LEFT, "y": y + 14, "width": max(axis.place(u_mj) - LEFT, 0.6), "height": 8.0, "class": "part step2"}
            drawn += [
                drawing.label(LEFT, y + 10, f"{term.term}{freedom}", "name"),
                drawing.label(RIGHT, y + 10, figures.significant(u_mj, 2), "figure", "end"),
            ]
            drawn.append(element("rect", box))
        parts.append(drawing.sheet(bottom + 44, f"Budget of {figures.significant(energy.gross_mj)} mJ", *drawn))
    if unknown:
        parts.append(element("p", {"class": "note"}, f"Unknown, so the total is unknown too: {', '.join(unknown)}."))
    if not energy.budget:
        parts.append(element("p", {"class": "note"}, "This record has no uncertainty budget."))
    return join(parts)


def facts_of(one: Condition) -> dict[str, str | None]:
    """Return what was read of the machine, by name."""
    values = {name: value for name in one.__struct_fields__ if name != "when" and (value := getattr(one, name)) not in (None, {}, ())}
    return {called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]}


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(f"{name} {figures.significant(value)}{unit}" for name, value in values.items())


def _process(value: OtherProcess) -> str:
    more = f" and {value.count - 1} more" if value.count > 1 else ""
    return f"{value.name} (pid {value.pid}{more}), {_share(value.load_ratio)} of all cores"


# By the record's name: what people call it, and how its value is written.
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
    "load_window_ms": ("Load observed for", _in("ms")),
    "agent_load_ratio": ("Load of the agent", _share),
    "busiest_other": ("Busiest other process", _process),
    "memory_available_mb": ("Memory available", _in("MB")),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "gpu_clock_hz": ("GPU clock", _in("MHz", 1e6)),
    "gpu_clock_max_hz": ("Highest GPU clock allowed", _in("MHz", 1e6)),
    "temperature_limits_c": ("Throttles or shuts down at", _each(" °C")),
    "throttle_flags": ("Throttle flags", hex),
    "throttle_events": ("Throttle events since boot", _each()),
    "clock_synchronised": ("Wall clock synchronised", _yes_or_no),
    "clock_offset_ms": ("Wall clock offset", _in("ms")),
    "clock_error_ms": ("Wall clock error, at most", _in("ms")),
    "attached": ("Attached", ", ".join),
}

FILTERS = ()

# A chart holds no more points than can be seen; of each stretch the extremes are kept.
POINTS = 4000
LEVELS = ("p50", "p90", "p95", "p99", "p99_9")

# The parts of an accuracy, as COCO's evaluation means them.
DETAILS = {
    "ap50": "AP at IoU 0.50",
    "ap75": "AP at IoU 0.75",
    "ap_small": "AP of small objects",
    "ap_medium": "AP of medium objects",
    "ap_large": "AP of large objects",
    "ar_1": "Recall, 1 detection an image",
    "ar_10": "Recall, 10 detections an image",
    "ar_100": "Recall, 100 detections an image",
    "ar_small": "Recall of small objects",
    "ar_medium": "Recall of medium objects",
    "ar_large": "Recall of large objects",
}

# At most this many raw samples are written as plain numbers in one response.
SAMPLES_OUT = 2_000_000


def run_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return the page of the run of that id.

    Raises:
        ConfigError: there is no such run.
    """
    found = run_of(context.connection, request.get("id"))
    if found is None:
        raise ConfigError(f"there is no run {request.get('id')!r}")
    record = context.source.one(found.row)
    key = record.model
    links = context.links
    trail = element(
        "p", None,
        link(links.to("model", model=key.name), key.name), ", ", f"{record.precision} on {record.runtime.name} {record.runtime.version}, ",
        link(links.to("device", fleet=record.fleet, device=record.device), record.device),
    )  # fmt: skip
    parts = [
        trail,
        section("verdict", "Verdict and evidence", _verdict(record)),
        section("latency", "Latency, query by query", _latency(record)),
        section(
            "energy",
            "Energy",
            part("figure", "Energy and the terms of its uncertainty", energy_budget(record)) if record.energy else energy_budget(record),
            *_power(record),
        ),
        section("accuracy", "Accuracy", _accuracy(record)),
        section("conditions", "Before, during, after", _conditions(record)),
        section("machine", "The machine", part("facts", machine_facts([record]))),
        section("everything", "Everything in the record", _everything(record)),
    ]
    provenance = record.provenance.get("latency", "")
    label = "" if provenance == "measured" else f" {provenance.capitalize()}: none of its figures was measured in this run."
    p50 = figures.significant(record.latency.p50_ms)
    lead = f"{figures.stamp(record.started_at_ns)} UTC: p50 {p50} ms over {record.latency.count:,} queries, {record.verdict.state}.{label}"
    return View(f"Run {record.id}", join(parts), lead, _tables(record), FILTERS)


def _verdict(record: RunRecord) -> Markup:
    verdict = record.verdict
    lines = [element("p", None, element("b", {"class": None if verdict.state == "valid" else "doubt"}, verdict.state))]
    for heading, texts in (("", verdict.reasons), ("Worth knowing", verdict.notes)):
        if texts:
            items = element("ul", {"class": "reasons"}, *(element("li", None, text) for text in texts))
            lines += [element("h3", None, heading), items] if heading else [items]
    if not verdict.reasons:
        lines.append(note("No measurement rule is violated."))
    return join(lines)


def _latency(record: RunRecord) -> Markup:
    values = _values(record, "latency")
    drawn: list[Markup] = []
    if values is not None and len(values):
        latencies_ms = [float(value) * 1e-6 for value in values]
        dots = [plot.PlotDot(index + 1, value) for index, value in plot.thinned(latencies_ms, POINTS)]
        level = [plot.PlotStretch(1, len(latencies_ms), record.latency.p50_ms)] if record.latency.p50_ms is not None else []
        in_order = plot.over_count("Latency of every query, in order", "ms", "Query", dots, levels=level)
        ordered = sorted(latencies_ms)
        steps = [plot.PlotDot(value, (index + 1) / len(ordered)) for index, value in _ranked(ordered)]
        shares = plot.over_count("Share of queries at most as slow", "share of queries", "ms", steps, joined=True)
        drawn = [
            part("figure", "In the order of the queries", in_order),
            part("figure", "Cumulative share of queries", shares),
        ]
    else:
        drawn = [note("The raw samples of this run are not stored.")]
    rows = [(name, *(getattr(record.latency, f"{name}{part}_ms") for part in ("", "_low", "_high"))) for name in LEVELS]
    facts: dict[str, str | None] = {
        name.replace("_", "."): f"{figures.significant(value)} ms, 95 % {figures.span(low, high)}"
        if low is not None and high is not None
        else f"{figures.significant(value)} ms"
        for name, value, low, high in rows
        if value is not None
    }
    facts |= {name.replace("_", "."): f"refused: needs {needed:,} queries" for name, needed in record.latency.refused.items()}
    facts |= {
        "Mean": f"{figures.significant(record.latency.mean_ms)} ms",
        "Lowest": f"{figures.significant(record.latency.min_ms)} ms",
        "Highest": f"{figures.significant(record.latency.max_ms)} ms",
    }
    facts |= {
        "Throughput": f"{figures.significant(record.throughput_per_s)} per s",
        "Warm-up": f"{record.warm_up.queries:,} queries, {'steady' if record.warm_up.steady else 'never steady'}",
    }
    return join([part("gallery", drawn), part("facts", facts)])


def _ranked(ordered: Sequence[float]) -> list[tuple[int, float]]:
    places = np.unique(np.linspace(0, len(ordered) - 1, min(POINTS // 4, len(ordered))).round().astype(int))
    return [(int(place), ordered[place]) for place in places]


def _power(record: RunRecord) -> list[Markup]:
    """Return the trace of each power sensor, where the record kept it, with the stretch that was timed."""
    drawn = []
    for trace in record.power_traces:
        power, at = _values(record, f"power.{trace.name}"), _values(record, f"power_at.{trace.name}")
        if power is None or at is None or len(power) != len(at) or not len(power):
            continue
        start_s = float(at[0]) * 1e-9
        kept = plot.thinned([float(value) for value in power], POINTS)
        dots = [plot.PlotDot(float(at[index]) * 1e-9 - start_s, value) for index, value in kept]
        drawn.append(part("figure", f"Power, {trace.name}", plot.over_count(f"Power, {trace.name}", "W", "s", dots, joined=True)))
    return [part("gallery", drawn)] if drawn else []


def _accuracy(record: RunRecord) -> Markup:
    accuracy = record.accuracy
    if accuracy is None:
        return note(f"No accuracy: {record.accuracy_reason or 'not scored'}.")
    bounds = (
        f", {accuracy.interval or '95 %'}: {figures.accuracy(accuracy.low)} to {figures.accuracy(accuracy.high)}"
        if accuracy.low is not None
        else ""
    )
    facts: dict[str, str | None] = {
        metric_name(accuracy.metric): f"{figures.accuracy(accuracy.value)} over {figures.count(accuracy.images, 'image')}{bounds}"
    }
    facts |= {DETAILS.get(name, metric_name(name)): figures.accuracy(value) for name, value in accuracy.detail.items() if value is not None}
    gate = record.accuracy_gate
    if gate:
        facts["Gate"] = (
            f"{'passed' if gate.passed else 'not passed'}: needed {figures.accuracy(gate.needed_value)}"
            f" ({gate.ratio:.0%} of {figures.accuracy(gate.reference_value)})"
        )
    return part("facts", facts)


def _conditions(record: RunRecord) -> Markup:
    lines = [
        element("section", None, element("h3", None, one.when.capitalize()), part("facts", facts_of(one))) for one in record.conditions
    ]
    return part("gallery", lines) if lines else note("Not reported.")


def _everything(record: RunRecord) -> Markup:
    whole = json_document(msgspec.structs.replace(record, samples=()))
    listed = [f"{series.name}: {series.count:,} values, {series.unit}" for series in record.samples]
    raw = note(f"Raw samples: {'; '.join(listed) or 'none kept'}. CSV holds them.")
    # Line by line, so that no character that steers a page gets through and the lines stay.
    lines = join(part for line in whole.split("\n") for part in (line, element("br")))
    return join(
        [
            raw,
            element(
                "details",
                None,
                element("summary", None, "The record as JSON, without raw samples"),
                element("pre", {"tabindex": "0"}, lines),
            ),
        ]
    )


def _tables(record: RunRecord) -> tuple[ViewTable, ...]:
    rows: list[tuple[str, str, int, float]] = []
    for series in record.samples:
        values = _unpacked(series)
        if values is not None and len(rows) + len(values) <= SAMPLES_OUT:
            rows += [(series.name, series.unit, index, value) for index, value in enumerate(values)]
    whole = msgspec.to_builtins(msgspec.structs.replace(record, samples=()))
    flat = tuple((name, value) for name, value in _flat("", whole))
    return ViewTable("samples", ("series", "unit", "index", "value"), tuple(rows)), ViewTable("record", ("field", "value"), flat)


def _flat(name: str, value: object) -> list[tuple[str, str | int | float | bool | None]]:
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in _flat(f"{name}.{key}" if name else str(key), part)]
    if isinstance(value, list | tuple):
        return [pair for index, part in enumerate(value) for pair in _flat(f"{name}.{index}", part)]
    return [(name, value if isinstance(value, str | int | float | bool) or value is None else str(value))]


def _values(record: RunRecord, name: str) -> Sequence[float] | None:
    found = next((series for series in record.samples if series.name == name), None)
    return None if found is None else _unpacked(found)


def _unpacked(series: Series) -> list[float] | None:
    try:
        values = unpack(series)
    except ConfigError:
        return None
    found: list[float] = values[np.isfinite(values.astype(np.float64))].tolist()
    return found
