"""The report: one HTML file that needs nothing else, neither a network nor a script, to be read, printed and kept."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, ChartSheet
from edgemeter.collector.compare.comparison import MARKS, Comparison, ComparisonRow
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import environment, hottest_c
from edgemeter.collector.runs.energy_class import MEASURED
from edgemeter.collector.show import report_charts, report_table
from edgemeter.collector.show.conclusions import cautions, conclusions, groups, speed, title
from edgemeter.collector.show.markup import Markup, element, join, own_script_policy, part, raw, render, text_of
from edgemeter.collector.show.report_charts import Charts
from edgemeter.collector.show.report_table import anchor
from edgemeter.collector.show.series_style import SeriesStyles, assign_styles
from edgemeter.collector.show.wording import case_names, gross_text, metric_name, runtime_name

# More cards than these are no summary; the table has all.
MOST_CARDS = 9
IDS_SHOWN = 20

# A page is read by people: of more runs than these the newest are shown, and the rest is counted.
RUNS_SHOWN = 60
HEADINGS = ("Run", "Started (UTC)", "Queries", "p50 ms", "p90 ms", "per s", "Accuracy", "Peak MB", "Gross mJ", "Verdict")
METHOD = (
    "Latency is the runtime's call alone; pre- and post-processing are timed separately. A percentile that too few queries support is not"
    " printed. Accuracy is of the same model file, by its sha256. Only cases of the same model, task, scenario, data and input size are"
    " compared, and energies only at the same scope."
)


def write_report(comparison: Comparison, path: Path, command: str) -> None:
    """Write the report to `path`; the runs of `comparison` should have come with their raw samples.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text(report_page(comparison, command, time.time_ns()), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the report to {str(path)!r}: {error.strerror}: name another file with --html") from error


def report_page(comparison: Comparison, command: str, made_ns: int) -> str:
    """Return the report as HTML; `command` is what was compared with what, `made_ns` when (UTC)."""
    script = text_of("show/report.js")
    styles = assign_styles(comparison.rows)

    def gallery(*made: Callable[[Comparison, SeriesStyles], Charts]) -> Markup:
        return chart_gallery(ChartSheet(_printed), [one(comparison, styles) for one in made])

    sections = (
        ("table", "All cases", report_table.summary_table(comparison, styles)),
        ("latency", "Latency", gallery(report_charts.latency_front, report_charts.latency_distributions)),
        ("energy", "Energy", gallery(report_charts.energy_front)),
        ("start", "Cold start and memory", gallery(report_charts.cold_start_charts)),
        ("machines", "Machines", machines_section(comparison)),
        ("verdicts", "Verdicts", verdicts_section(comparison)),
        ("left-out", "Left out", left_out_section(comparison)),
        ("method", "Method", method_section(comparison, command)),
        ("runs", "Every run", runs_section(comparison)),
    )
    found = groups(comparison.rows)
    return render(
        "show/whole_report.html",
        title=title(comparison),
        # The page may load nothing and run nothing but its own script: what a device sent stays text.
        policy=own_script_policy((script,), "img-src data:"),
        style=raw(text_of("show/report.css")),
        script=raw(script),
        lead=" ".join(conclusions(comparison)),
        cards=_figure_cards(found[0].fastest) if len(found) == 1 else [_case_card(group.fastest) for group in found[:MOST_CARDS]],
        is_one=len(found) == 1,
        more_cards=max(0, len(found) - MOST_CARDS),
        cautions=" ".join(cautions(comparison)),
        sections=[section for section in sections if comparison.rows or section[0] == "left-out"],
        version=version("edgemeter"),
        made=figures.stamp(made_ns),
    )


def _printed(chart: Chart, _number: int) -> Markup:
    return part("chart", chart, raw(vega.svg(chart, is_alone=False)))


def chart_gallery(sheet: ChartSheet, found: Sequence[Charts]) -> Markup:
    """Return charts side by side, and below them what they do not show."""
    drawn = [sheet.draw(chart) for one in found for chart in one.charts]
    notes = [element("p", {"class": "note"}, text) for one in found for text in one.notes]
    return join([part("gallery", drawn) if drawn else "", *notes])


def card(heading: str, figure: str, unit: str, *lines: str) -> dict[str, object]:
    """Return a card for the macro `cards`; where there is no figure it shows `none`, and the lines give the reason."""
    is_there = figure != figures.ABSENT
    return {"heading": heading, "figure": figure if is_there else "none", "unit": unit if is_there else "", "lines": lines}


def _figure_cards(row: ComparisonRow) -> list[dict[str, object]]:
    case, ratio, difference = row.case, row.ratios.peak_memory, row.ratios.accuracy_difference
    accuracy = "" if difference is None else f"{figures.typeset(figures.difference(difference))} to the reference"
    energy = str(case.energy.ranks_as) if case.energy else case.energy_reason or ""
    metric = metric_name(case.accuracy.metric) if case.accuracy else ""
    memory = f"{figures.typeset(figures.times(ratio))} the reference's" if ratio else ""
    return [
        card("Latency", figures.significant(median_of(case.p50_ms)), "ms p50", speed(row), _how(row)),
        card("Accuracy", figures.accuracy(median_of(case.accuracy_value)), metric, accuracy, case.accuracy_reason or ""),
        card("Energy", gross_text(case), "mJ gross", energy),
        card("Memory", figures.significant(median_of(case.peak_mb)), "MB peak", memory),
    ]


def _case_card(row: ComparisonRow) -> dict[str, object]:
    case, difference = row.case, row.ratios.accuracy_difference
    accuracy = "accuracy unknown"
    if case.accuracy:
        accuracy = f"{metric_name(case.accuracy.metric)} {figures.accuracy(median_of(case.accuracy_value))}"
    if difference is not None:
        accuracy += f" ({figures.typeset(figures.difference(difference))})"
    energy = f"{gross_text(case)} mJ gross, {case.energy.ranks_as}" if case.energy else "energy not measured"
    heading = f"{case.key.model} on {case.key.device}"
    return card(heading, figures.significant(median_of(case.p50_ms)), "ms p50", _how(row), speed(row), accuracy, energy)


def _how(row: ComparisonRow) -> str:
    return f"{row.case.key.precision} on {runtime_name(row.case)}{', suspect' if row.case.suspect else ''}"


def verdicts_section(comparison: Comparison) -> Markup:
    """Return the suspect cases with their reasons, and what the marks of the rows mean."""
    suspect = [row for row in comparison.rows if row.case.suspect]
    opening = element("p", None, "No run shown violates a measurement rule.")
    if suspect:
        opening = part("reasons", [_suspect_case(comparison, row) for row in suspect])
    marked = {mark: sum(mark in row.marks for row in comparison.rows) for mark in MARKS if mark not in {"reference", "suspect"}}
    lines = [
        join([element("b", None, mark), f" ({figures.count(number, 'case')}): {MARKS[mark]}"]) for mark, number in marked.items() if number
    ]
    return join([opening, part("reasons", lines) if lines else ""])


def _suspect_case(comparison: Comparison, row: ComparisonRow) -> Markup:
    key = row.case.key
    name = f"{key.model}, {key.precision} on {key.runtime}, {key.device}"
    reasons = element("ul", None, *(element("li", None, reason) for reason in row.case.verdict_reasons))
    return join([element("a", {"href": f"#{anchor(comparison, row)}"}, name), reasons])


def left_out_section(comparison: Comparison) -> Markup:
    """Return what was left out: each reason with the runs that it holds for."""
    if not comparison.left_out:
        return element("p", None, "Nothing was left out.")
    grouped: dict[str, list[str]] = {}
    for entry in comparison.left_out:
        grouped.setdefault(entry.reason, []).append(entry.run or "a record whose id cannot be read")
    lines = [
        {
            "number": len(runs),
            "reason": reason,
            "detail": ", ".join(runs[:IDS_SHOWN]) + (f" and {len(runs) - IDS_SHOWN} more" if len(runs) > IDS_SHOWN else ""),
        }
        for reason, runs in sorted(grouped.items(), key=lambda item: -len(item[1]))
    ]
    return part("counted", lines, "run")


def runs_section(comparison: Comparison) -> Markup:
    """Return every case with its runs, which the rest of the page links to."""
    names = case_names([row.case for row in comparison.rows])
    cases = [_runs_of(comparison, row, name) for row, name in zip(comparison.rows, names, strict=True)]
    return render("show/runs.html", cases=cases, headings=HEADINGS)


def _runs_of(comparison: Comparison, row: ComparisonRow, name: str) -> dict[str, object]:
    case, model = row.case, row.case.newest.model
    file = f"{model.file}, {model.size_bytes:,} bytes, sha256 {model.sha256}; data sha256 {case.key.dataset_sha256}."
    return {
        "anchor": anchor(comparison, row),
        "title": f"{case.key.device}: {case.key.model}, {name}",
        "runs": len(case.runs),
        "identity": f"{file} Compared with {row.reference.key.device}: {row.choice}.",
        "lines": [_run(run) for run in case.runs[-RUNS_SHOWN:]],
        "hidden": max(0, len(case.runs) - RUNS_SHOWN),
    }


def _run(run: RunRecord) -> tuple[str, ...]:
    latency = run.latency
    return (
        run.id,
        figures.stamp(run.started_at_ns),
        f"{latency.count:,}",
        _bounded(latency.p50_ms, latency.p50_low_ms, latency.p50_high_ms),
        _bounded(latency.p90_ms, latency.p90_low_ms, latency.p90_high_ms),
        figures.significant(run.throughput_per_s),
        figures.accuracy(run.accuracy.value if run.accuracy else None),
        figures.significant(run.memory.peak_mb),
        _gross(run),
        run.verdict.state,
    )


def _gross(run: RunRecord) -> str:
    if run.energy is None:
        return figures.ABSENT
    provenance = energy_provenance(run)
    label = "" if provenance == MEASURED else f" ({provenance or 'not stated to be measured'})"
    return f"{figures.with_uncertainty(run.energy.gross_mj, run.energy.gross_u_mj)}{label}"


def _bounded(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return figures.significant(value)
    return f"{figures.significant(value)} ({figures.span(low, high)})"


def machines_section(comparison: Comparison) -> Markup:
    """Return what each device is and how it was set up; values that changed between runs are joined by ` | `."""
    runs: dict[str, list[RunRecord]] = {}
    for row in comparison.rows:
        runs.setdefault(row.case.key.device, []).extend(row.case.runs)
    references = {row.case.key.device for row in comparison.rows if row.is_reference}
    parts = [_machine(f"{device}, reference" if device in references else device, found) for device, found in runs.items()]
    return part("gallery", parts)


def method_section(comparison: Comparison, command: str) -> Markup:
    """Return how the runs were measured, read from the runs themselves; `command` is what was compared."""
    runs = [run for row in comparison.rows for run in row.case.runs]
    warm_up = f"{_range([run.warm_up.queries for run in runs])}; steady before timing in {_share(runs, lambda run: run.warm_up.steady)}"
    facts = {
        "Command": command,
        "Mode": _counted(run.mode for run in runs),
        "Scenario": _counted(run.scenario for run in runs),
        "Timed queries per run": _range([run.latency.count for run in runs]),
        "Warm-up queries per run": warm_up,
        "Outputs compared with those for the same input later": _range([run.output_check.compared for run in runs]),
        "Clock synchronised": _share(runs, lambda run: run.clock_synchronised is True),
        "Runtimes": _counted(f"{run.runtime.package} {run.runtime.version}, {run.runtime.backend}" for run in runs),
        "Edgemeter on the devices": _counted(run.environment.agent for run in runs),
        "Provenance": _counted(f"{group} {source}" for run in runs for group, source in sorted(run.provenance.items())),
    }
    return join([element("p", None, METHOD), part("facts", facts)])


def _machine(heading: str, runs: Sequence[RunRecord]) -> Markup:
    hottest = hottest_c(runs)
    facts = {**machine_facts(runs), "Highest temperature": None if hottest is None else f"{figures.significant(hottest)} °C"}
    return element("section", None, element("h3", None, heading), part("facts", facts))


def machine_facts(runs: Sequence[RunRecord]) -> dict[str, str | None]:
    """Return what the machine of the runs is, in words; values that differ between the runs are joined by ` | `."""

    def reported(*fields: str) -> str | None:
        return " ".join(text for field in fields if (text := environment(runs, field))) or None

    memory_mb = runs[-1].environment.memory_mb
    libraries = (f"{name} {version}" for run in runs for name, version in run.environment.libraries.items())
    return {
        "Board": reported("board"),
        "Processor": reported("soc", "cpu"),
        "Cores": reported("cores"),
        "Memory": None if memory_mb is None else f"{figures.significant(memory_mb / 1000)} GB",
        "System": reported("os"),
        "Kernel": reported("kernel", "arch"),
        "Firmware": reported("firmware"),
        "Governor": reported("governor"),
        "Power mode": reported("power_mode"),
        "Virtualisation": reported("virtualisation"),
        "Attached": reported("attached"),
        "Agent": reported("agent"),
        "Python": reported("python"),
        "Libraries": ", ".join(dict.fromkeys(libraries)) or None,
    }


def _counted(texts: Iterable[str]) -> str:
    """Return the different texts, each with its number of times where there are several."""
    count = Counter(texts)
    return ", ".join(count) if len(count) < 2 else ", ".join(f"{text} ({number})" for text, number in count.most_common())


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _share(runs: Sequence[RunRecord], holds: Callable[[RunRecord], bool]) -> str:
    return f"{sum(holds(run) for run in runs)} of {figures.count(len(runs), 'run')}"
