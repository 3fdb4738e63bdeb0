"""The page of one run: every figure that its record holds, down to the raw samples."""

from collections.abc import Sequence

import msgspec
import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord, Series
from edgemeter.agent.samples import unpack
from edgemeter.collector.show import figures, plot
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.wording import metric_name
from edgemeter.collector.web import conditions
from edgemeter.collector.web.book import Book
from edgemeter.collector.web.budget import budget
from edgemeter.collector.web.device import facts_of, told
from edgemeter.collector.web.queries import Narrowing, run_of
from edgemeter.collector.web.view import Asked, Table, View, link, note, section

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
# So many raw samples are written out as plain numbers in one answer.
SAMPLES_OUT = 2_000_000


def run(book: Book, asked: Asked, narrowing: Narrowing) -> View:  # noqa: ARG001 - every view is asked alike
    """Return the page of the run of that id.

    Raises:
        ConfigError: there is no such run.
    """
    found = run_of(book.connection, asked.get("id"))
    if found is None:
        message = f"there is no run {asked.get('id')!r} here"
        raise ConfigError(message)
    record = book.source.one(found.row)
    key = record.model
    links = book.links
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
            _figure("Energy and the terms of its uncertainty", budget(record)) if record.energy else budget(record),
            *_power(record),
        ),
        section("accuracy", "Accuracy", _accuracy(record)),
        section("conditions", "Before, during, after", _conditions(record)),
        section("machine", "The machine", told(facts_of(record))),
        section("everything", "Everything in the record", _everything(record)),
    ]
    provenance = record.provenance.get("latency", "")
    label = "" if provenance == "measured" else f" {provenance.capitalize()}: no figure of it was measured in this run."
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
        lines.append(note("No rule of measuring was broken."))
    return join(lines)


def _latency(record: RunRecord) -> Markup:
    values = _values(record, "latency")
    drawn: list[Markup] = []
    if values is not None and len(values):
        latencies_ms = [float(value) * 1e-6 for value in values]
        dots = [plot.Dot(index + 1, value) for index, value in plot.thinned(latencies_ms, POINTS)]
        level = [plot.Stretch(1, len(latencies_ms), record.latency.p50_ms)] if record.latency.p50_ms is not None else []
        in_order = plot.over_count("Latency of every query, in order", "ms", "Query", dots, levels=level)
        ordered = sorted(latencies_ms)
        steps = [plot.Dot(value, (index + 1) / len(ordered)) for index, value in _ranked(ordered)]
        shares = plot.over_count("Share of queries at most as slow", "share of queries", "ms", steps, joined=True)
        drawn = [_figure("In the order of the queries", in_order), _figure("Share of queries that took at most so long", shares)]
    else:
        drawn = [note("The raw samples of this run are not kept (any more).")]
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
    return join([element("div", {"class": "gallery"}, *drawn), told(facts)])


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
        dots = [plot.Dot(float(at[index]) * 1e-9 - start_s, value) for index, value in kept]
        drawn.append(_figure(f"Power, {trace.name}", plot.over_count(f"Power, {trace.name}", "W", "s", dots, joined=True)))
    return [element("div", {"class": "gallery"}, *drawn)] if drawn else []


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
    return told(facts)


def _conditions(record: RunRecord) -> Markup:
    lines = [
        element("section", None, element("h3", None, one.when.capitalize()), told(conditions.facts_of(one))) for one in record.conditions
    ]
    return element("div", {"class": "gallery"}, *lines) if lines else note("Nothing was read.")


def _everything(record: RunRecord) -> Markup:
    whole = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, samples=())), indent=2).decode()
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


def _tables(record: RunRecord) -> tuple[Table, ...]:
    rows: list[tuple[str, str, int, float]] = []
    for series in record.samples:
        values = _unpacked(series)
        if values is not None and len(rows) + len(values) <= SAMPLES_OUT:
            rows += [(series.name, series.unit, index, value) for index, value in enumerate(values)]
    whole = msgspec.to_builtins(msgspec.structs.replace(record, samples=()))
    flat = tuple((name, value) for name, value in _flat("", whole))
    return Table("samples", ("series", "unit", "index", "value"), tuple(rows)), Table("record", ("field", "value"), flat)


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


def _figure(title: str, drawn: Markup) -> Markup:
    return element("figure", None, element("figcaption", None, title), drawn)
