"""Writes a site of results: a folder of files that any host serves, and that opens from a disk without one."""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.bundle.verify import signature_text
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import Figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.board.entries import SiteEntry
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, ChartSheet, script_data
from edgemeter.collector.index.index_file import FACETS
from edgemeter.collector.index.run_index import RunIndex, open_index
from edgemeter.collector.index.sources import DocumentSource
from edgemeter.collector.runs.cases import UNKNOWN_BOARD
from edgemeter.collector.web.case_table import CASES_SHOWN
from edgemeter.collector.web.context import ViewContext, live_chart
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup, element, join, part, raw, render, text_of
from edgemeter.collector.web.overview import coverage
from edgemeter.collector.web.queries import CaseFilter, cases, count_cases
from edgemeter.collector.web.site import STYLE_SHEET, FormChoices, board_page, content, held_exports, script, show
from edgemeter.collector.web.view import (
    ROUTES,
    Links,
    View,
    ViewColumn,
    ViewRequest,
    address,
    grid,
    link,
    note,
    read_address,
    section,
    verdict_cell,
    with_small,
)

TRUST = (
    "Verified: signed by the lab, and latency, throughput, energy and verdict computed again from the raw samples in the bundle when this"
    " site was built; no other bundle here has these samples. A signature proves who wrote a bundle and that nothing"
    " changed since; it does not prove that the device reported the truth, and samples with noise added pass for others."
)
STATED = (
    "As the labs state it: without the predictions, which are not in the bundles, nobody can compute an accuracy again. It is in no"
    " comparison here. Memory and cold start, on the page of a run, are stated as well."
)


def board_view(context: ViewContext, entries: Sequence[SiteEntry], places: Mapping[str, tuple[str, str]]) -> View:
    """Return the index; `places` has bundle and badge of each verified run by its id."""
    results = ((entry, entry.run) for entry in entries if entry.state == "verified" and entry.run)
    verified = sorted(results, key=lambda pair: (pair[1].model.name, pair[1].latency.p50_ms or float("inf"), pair[1].id))
    apart_entries = [entry for entry in entries if entry.state != "verified"]
    labs = {entry.lab for entry, _ in verified}
    table, plain = grid("results", _columns(context.links, places), verified, lambda pair: facets(pair[1]))
    stating_results = [(entry, entry.stated) for entry, _ in verified if entry.stated and entry.stated.accuracy]
    stated_table, stated_plain = grid("stated", _stated_columns(context.links), stating_results, lambda pair: facets(pair[1]))
    apart, apart_plain = grid("apart", _APART, apart_entries)
    measured = cases(context.connection, CaseFilter())
    covered = coverage(measured, context.links, max(case.newest_ns for case in measured))[0] if measured else note("Nothing yet.")
    parts = [
        section("results", "Verified results", table if verified else note("None yet."), note(TRUST)),
        *([section("stated", "Stated, not recomputed", stated_table, note(STATED))] if stating_results else []),
        section("coverage", "What was measured where", covered),
        *([section("apart", "Not verified, set aside", apart, note("None of these is in any comparison."))] if apart_entries else []),
    ]
    title = f"{figures.count(len(verified), 'verified result')} of {figures.count(len(labs), 'lab')}"
    lead = f"{figures.count(len(apart_entries), 'more bundle')} could not be verified." if apart_entries else ""
    return View(title, join(parts), lead, (plain, stated_plain, apart_plain), FACETS)


def facets(run: RunRecord) -> dict[str, str | float | None]:
    """Return what a script may narrow the table to, as `data-...` attributes."""
    values = (run.fleet, run.device, run.environment.board or UNKNOWN_BOARD, run.model.name, run.runtime.name, run.precision)
    return {f"data-{name}": value for name, value in zip(FACETS, values, strict=True)}


def verification_section(entry: SiteEntry, places: tuple[str, str]) -> Markup:
    """Return what was checked of a result, who signed it, and where its bundle and badge are."""
    verification, (bundle, badge) = entry.found, places
    reasons = [f"{figure.field}: {figure.why}" for figure in verification.left]
    facts: dict[str, Markup | str | None] = {
        "Figures recomputed": f"{verification.checked}, none differs",
        "Signature": f"{entry.lab}: {signature_text(verification.signature).partition(';')[0]}",
        "Written by": f"edgemeter {verification.written_by}",
        "Fleet, as stated": entry.stated_fleet,
        "Bundle": link(bundle, "download it, and check it with: edgemeter bundle verify FILE"),
        "Badge": link(badge, badge),
        "Copies set aside": join([part("reasons", entry.copies)]) if entry.copies else None,
        "Accuracy, stated": figures.accuracy(entry.stated.accuracy.value) if entry.stated and entry.stated.accuracy else None,
        "Not recomputed": join([part("reasons", reasons)]) if reasons else None,
    }
    return section("verification", "Verification", part("facts", {name: fact for name, fact in facts.items() if fact}))


Result = tuple[SiteEntry, RunRecord]


def _columns(links: Links, places: Mapping[str, tuple[str, str]]) -> list[ViewColumn[Result]]:
    return [
        *_case_columns(links),
        ViewColumn(
            "runtime", "Runtime", lambda pair: f"{pair[1].runtime.name} {pair[1].runtime.version}",
            lambda pair: with_small(
                f"{pair[1].runtime.name} {pair[1].runtime.version}",
                f"{pair[1].runtime.threads_text}, {pair[1].scenario.replace('_', ' ')}",
            ),
            is_text=True,
        ),
        *(_figure(entry) for entry in in_view("site") if entry.group != "accuracy"),
        ViewColumn("provenance", "", _provenance, is_shown=False),
        ViewColumn(
            "verdict", "Verdict", lambda pair: pair[1].verdict.state,
            lambda pair: verdict_cell(pair[1].verdict.state),
            is_text=True,
        ),
        ViewColumn("lab", "Signed by", lambda pair: pair[0].lab, is_text=True),
        ViewColumn("fingerprint", "", lambda pair: signed.fingerprint if (signed := pair[0].found.signature) else None, is_shown=False),
        ViewColumn("figures_recomputed", "Recomputed", lambda pair: pair[0].found.checked),
        ViewColumn("run", "Run", lambda pair: pair[1].id, lambda pair: _links(pair[1], links, places[pair[1].id]), is_text=True),
    ]  # fmt: skip


def _case_columns(links: Links) -> list[ViewColumn[Result]]:
    return [
        ViewColumn(
            "model", "Model", lambda pair: pair[1].model.name,
            lambda pair: with_small(link(links.to("model", model=pair[1].model.name), pair[1].model.name), pair[1].precision), is_text=True,
        ),
        ViewColumn("precision", "", lambda pair: pair[1].precision, is_shown=False),
        ViewColumn(
            "device", "Device", lambda pair: pair[1].device,
            lambda pair: with_small(
                link(links.to("device", fleet=pair[1].fleet, device=pair[1].device), pair[1].device),
                pair[1].environment.board or UNKNOWN_BOARD,
            ),
            is_text=True,
        ),
        ViewColumn("board", "Board", lambda pair: pair[1].environment.board, is_shown=False),
    ]  # fmt: skip


def _stated_columns(links: Links) -> list[ViewColumn[Result]]:
    return [
        *_case_columns(links),
        ViewColumn("metric", "Metric", lambda pair: metric_name(pair[1].accuracy.metric) if pair[1].accuracy else None, is_text=True),
        ViewColumn(
            "accuracy",
            "Accuracy, stated",
            lambda pair: pair[1].accuracy.value if pair[1].accuracy else None,
            lambda pair: figures.accuracy(pair[1].accuracy.value) if pair[1].accuracy else "",
        ),
        ViewColumn("images", "Images", lambda pair: pair[1].accuracy.images if pair[1].accuracy else None),
        ViewColumn("data", "Data", lambda pair: pair[1].dataset.name, is_text=True),
        ViewColumn("lab", "Stated by", lambda pair: pair[0].lab, is_text=True),
    ]


_APART: list[ViewColumn[SiteEntry]] = [
    ViewColumn("file", "Bundle", lambda entry: entry.path.name, is_text=True),
    ViewColumn("state", "State", lambda entry: entry.state, is_text=True),
    ViewColumn("reason", "Why", lambda entry: entry.reason, is_text=True),
    ViewColumn("model", "Model", lambda entry: entry.found.model, is_text=True),
    ViewColumn("device", "Device", lambda entry: entry.found.device, is_text=True),
    ViewColumn("lab", "Signed by", lambda entry: entry.lab, is_text=True),
]


def _provenance(pair: Result) -> str:
    return pair[1].provenance.get("latency", "not stated to be measured")


def _figure(entry: Figure) -> ViewColumn[Result]:
    explanation = "energy per inference, idle included, with its uncertainty (95%)" if entry.name == "energy_gross_mj" else None
    return ViewColumn(entry.name, entry.heading, lambda pair: entry.value(pair[1]), _CELLS.get(entry.name), explanation)


def _p50(pair: Result) -> Markup:
    latency, provenance = pair[1].latency, _provenance(pair)
    low_ms, high_ms = latency.p50_low_ms, latency.p50_high_ms
    bounds = figures.span(low_ms, high_ms) if low_ms is not None and high_ms is not None else ""
    doubt = [element("small", {"class": "doubt"}, provenance)] if provenance != "measured" else []
    return join([with_small(figures.typeset(figures.significant(latency.p50_ms)), bounds), *doubt])


def _energy(run: RunRecord) -> Markup:
    if run.energy is None:
        return element("span", {"class": "none", "title": run.energy_reason}, "none")
    provenance = energy_provenance(run)
    energy_source = f"{run.energy.scope}{'' if provenance == 'measured' else f', {provenance}'}"
    return with_small(figures.with_uncertainty(run.energy.gross_mj, run.energy.gross_u_mj), energy_source)


# Figures of which the site says more than the number.
_CELLS: Mapping[str, Callable[[Result], Markup]] = {
    "latency_p50_ms": _p50,
    "energy_gross_mj": lambda pair: _energy(pair[1]),
}


def _links(run: RunRecord, links: Links, places: tuple[str, str]) -> Markup:
    bundle, badge = places
    downloads = element("small", None, link(bundle, "bundle"), ", ", link(badge, "badge"))
    return join([link(links.to("run", id=run.id), "all of it"), downloads])


INDEX, RUNS, BUNDLES, BADGES = "index.html", "runs.js", "bundles", "badges"
# A character of a badge is so wide, and beside its text there is so much room.
CHARACTER_PX, AROUND_PX = 6.6, 12
COLOURS = {"valid": "#0b7a4b", "suspect": "#8a5a00", "invalid": "#a32b2b"}
STEM, LABEL = 48, 44


@dataclass(frozen=True, slots=True)
class SiteLinks:
    """Links between the pages of a site; the filters of a page follow its name."""

    files: Mapping[str, str]

    def to(self, view: str, **fields: str) -> str | None:
        """Return the file of a view and its filters, None where the site has no such page."""
        route = {name: value for name, value in fields.items() if name in ROUTES[view]}
        file = self.files.get(address(view, route))
        narrowed = {name: value for name, value in fields.items() if name not in route}
        return file and address(file, narrowed)


def write_board(
    entries: Sequence[SiteEntry], folder: Path, remark: str, progress: Callable[[str, int, int], None] = lambda *_: None
) -> int:
    """Write the site of `entries` into `folder`, which is created or replaces an older site; return the number of its pages.

    Raises:
        ConfigError: the folder holds something that is not a board.
        UnavailableError: a file cannot be written.
    """
    verified = [(entry, entry.run) for entry in entries if entry.state == "verified" and entry.run]
    index = open_index(DocumentSource(tuple(run for _, run in verified)))
    with closing(index), os_error_as(UnavailableError, f"cannot write the site to {str(folder)!r}", "give a writable folder with space"):
        index.refresh()
        _clear(folder)
        for subfolder in (folder, folder / BUNDLES, folder / BADGES):
            subfolder.mkdir(parents=True, exist_ok=True)
        _write_shared(verified, folder)
        return _write_pages(index, entries, folder, remark, progress)


def _clear(folder: Path) -> None:
    """Remove the older site, since a result that is no longer verified must not stay; files of others remain."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / RUNS).exists():
        raise ConfigError(f"{str(folder)!r} is not empty and holds no board: name an empty or a new folder with --output")
    for subfolder in (folder / BUNDLES, folder / BADGES):
        shutil.rmtree(subfolder, ignore_errors=True)
    for file in (*folder.glob("*.html"), *folder.glob("charts-*.js")):
        file.unlink()


def _write_shared(verified: Sequence[tuple[SiteEntry, RunRecord]], folder: Path) -> None:
    # First: by it an interrupted board is known as one.
    runs = {run.id: _file(address("run", {"id": run.id})) for _, run in verified}
    (folder / RUNS).write_text(f"const RUNS = {script_data(runs)};\n", encoding="utf-8")
    (folder / "page.css").write_text(text_of(STYLE_SHEET), encoding="utf-8")
    (folder / "page.js").write_text(script(), encoding="utf-8")
    (folder / vega.bundle_name()).write_text(vega.bundle(), encoding="utf-8")
    for entry, run in verified:
        bundle, shield = places_of(run)
        shutil.copyfile(entry.path, folder / bundle)
        (folder / shield).write_text(badge(run), encoding="utf-8")


def _write_pages(
    index: RunIndex, entries: Sequence[SiteEntry], folder: Path, remark: str, progress: Callable[[str, int, int], None]
) -> int:
    by_id = {entry.run.id: entry for entry in entries if entry.state == "verified" and entry.run}
    places = {entry.run.id: places_of(entry.run) for entry in by_id.values() if entry.run}
    runs = [entry.run for entry in by_id.values() if entry.run]
    with index.reading() as connection:
        addresses = _addresses(runs, count_cases(connection, CaseFilter()))
    links = SiteLinks({address: _file(address) for address in addresses})
    for count, text in enumerate(addresses, start=1):
        request = read_address(text)
        with index.reading() as connection:
            live = live_chart if request.view == "run" else _drawn
            context = ViewContext(connection, index.source, links, TrendEvents(), ChartSheet(live))
            view = board_view(context, entries, places) if request.view == "overview" else show(context, request)
        if view is None:
            continue
        if request.view == "run":
            run_id = request.get("id")
            view = replace(view, body=join([verification_section(by_id[run_id], places[run_id]), view.body]))
        # The raw samples of a run are in its bundle.
        exports = {} if request.view == "run" else held_exports(view, request)
        inside = content(view, request, _choices(runs, request), links, exports, {"fleet": "Lab"})
        (folder / links.files[text]).write_text(board_page(view.title, inside, remark), encoding="utf-8")
        progress("writing pages", count, len(addresses))
    return len(addresses)


def _addresses(runs: Sequence[RunRecord], cases: int) -> list[str]:
    models = sorted({run.model.name for run in runs})
    devices = sorted({(run.fleet, run.device) for run in runs})
    return [
        "overview",
        *(["compare"] if runs else []),
        *(address("compare", {"page": str(page)}) for page in range(2, -(-cases // CASES_SHOWN) + 1)),
        *(address("model", {"model": model}) for model in models),
        *(address("device", {"fleet": fleet, "device": device}) for fleet, device in devices),
        *(address("run", {"id": run.id}) for run in runs),
    ]


def _choices(runs: Sequence[RunRecord], request: ViewRequest) -> FormChoices:
    """Return what the form of a page offers: the facets of all runs, but not what the page is about."""
    if request.view not in ("overview", "compare"):
        return {}
    facets_of_runs = [facets(run) for run in runs]
    values = {name: sorted({str(facet[f"data-{name}"]) for facet in facets_of_runs}) for name in FACETS}
    return {name: dict(zip(names, names, strict=True)) for name, names in values.items()}


def _drawn(chart: Chart, number: int) -> Markup:
    return live_chart(chart, number, element("noscript", None, raw(vega.svg(chart, is_alone=False))))


def _file(text: str) -> str:
    """Return the name of the page of an address: readable, and of one address only."""
    if text in ("overview", "compare"):
        return INDEX if text == "overview" else "compare.html"
    request = read_address(text)
    stem = re.sub(r"[^a-z0-9]+", "-", " ".join(request.fields.values()).lower())[:STEM].strip("-")
    return f"{request.view}-{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.html"


def places_of(run: RunRecord) -> tuple[str, str]:
    """Return the paths of a run's bundle and badge in a site."""
    stem = _file(address("run", {"id": run.id})).removesuffix(".html")
    return f"{BUNDLES}/{stem}.edgemeter", f"{BADGES}/{stem}.svg"


def badge(run: RunRecord) -> str:
    """Return the badge of a verified run as SVG: model and board, p50, energy where there is one, and what keeps it from being valid."""
    energy = f", {figures.significant(run.energy.gross_mj)} mJ" if run.energy else ""
    provenance = run.provenance.get("latency", "not stated")
    doubts = [doubt for doubt in (run.verdict.state, provenance) if doubt not in ("valid", "measured")]
    where = figures.printable(f"{run.model.name} {run.precision} on {run.environment.board or run.device}")[:LABEL]
    text = ", ".join([f"p50 {figures.significant(run.latency.p50_ms)} ms{energy}", *doubts, "recomputed"])
    label_px, right = (round(len(label) * CHARACTER_PX + AROUND_PX) for label in (where, text))
    colour = COLOURS["suspect"] if doubts and run.verdict.state == "valid" else COLOURS.get(run.verdict.state, COLOURS["suspect"])
    return render("badge.svg", label=where, text=text, left=label_px, right=right, colour=colour)
