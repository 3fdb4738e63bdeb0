"""Every case with its runs: what the rest of the report links to."""

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.comparison import Comparison, Row
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.report_table import anchor
from edgemeter.collector.show.wording import case_names

# A page is read by people: of more runs than these the newest are shown, and the rest is counted.
RUNS_SHOWN = 60
HEADINGS = ("Run", "Started (UTC)", "Queries", "p50 ms", "p90 ms", "per s", "Accuracy", "Peak MB", "Gross mJ", "Verdict")


def runs(comparison: Comparison) -> Markup:
    """Return every case with its runs, which the rest of the page links to."""
    names = case_names([row.case for row in comparison.rows])
    return join(_case(comparison, row, name) for row, name in zip(comparison.rows, names, strict=True))


def _case(comparison: Comparison, row: Row, name: str) -> Markup:
    case = row.case
    lines = [element("tr", None, *(element("td", None, text) for text in _run(run))) for run in case.runs[-RUNS_SHOWN:]]
    table = element(
        "table",
        None,
        element("thead", None, element("tr", None, *(element("th", None, head) for head in HEADINGS))),
        element("tbody", None, *lines),
    )
    model = case.newest.model
    file = f"{model.file}, {model.size_bytes:,} bytes, sha256 {model.sha256}; data sha256 {case.key.dataset_sha256}."
    identity = f"{file} Compared with {row.reference.key.device}: {row.choice}."
    hidden = len(case.runs) - RUNS_SHOWN
    more = [element("p", {"class": "note"}, f"{hidden} older runs are not shown.")] if hidden > 0 else []
    summary = element(
        "summary", None, f"{case.key.device}: {case.key.model}, {name} ", element("small", None, figures.count(len(case.runs), "run"))
    )
    scroll = element("div", {"class": "scroll", "tabindex": "0"}, table)
    return element("details", {"id": anchor(comparison, row)}, summary, element("p", {"class": "note hash"}, identity), scroll, *more)


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
        figures.with_uncertainty(run.energy.gross_mj, run.energy.gross_u_mj) if run.energy else figures.ABSENT,
        run.verdict.state,
    )


def _bounded(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return figures.significant(value)
    return f"{figures.significant(value)} ({figures.span(low, high)})"
