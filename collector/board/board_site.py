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
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.board.board_view import board_view, facets, verification_section
from edgemeter.collector.board.entries import SiteEntry
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, ChartSheet, script_data
from edgemeter.collector.index.index_file import FACETS
from edgemeter.collector.index.run_index import RunIndex, open_index
from edgemeter.collector.index.sources import DocumentSource
from edgemeter.collector.runs.cases import not_measured
from edgemeter.collector.web.case_table import CASES_SHOWN
from edgemeter.collector.web.context import ViewContext, live_chart
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup, element, join, raw, render, text_of
from edgemeter.collector.web.queries import CaseFilter, count_cases
from edgemeter.collector.web.site import STYLE_SHEET, FormChoices, board_page, content, held_exports, script, show
from edgemeter.collector.web.view import ROUTES, ViewRequest, address, read_address

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


def _drawn(chart: Chart) -> Markup:
    return live_chart(chart, element("noscript", None, raw(vega.svg(chart, is_alone=False))))


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
    """Return the badge of a verified run as SVG: model and board, p50, its own energy if measured, and what keeps it from being valid."""
    provenance, of_energy = run.provenance.get("latency", "not stated"), energy_provenance(run)
    label = "" if of_energy in ("measured", provenance) else f" {of_energy}"
    energy = f", {figures.significant(run.energy.gross_mj)} mJ{label}" if run.energy and not_measured(run, "energy") is None else ""
    company = figures.printable(f" beside {run.together.names}") if run.together else ""
    doubts = [doubt for doubt in (run.verdict.state, provenance) if doubt not in ("valid", "measured")]
    where = figures.printable(f"{run.model.name} {run.precision} on {run.environment.board or run.device}")[:LABEL]
    text = ", ".join([f"p50 {figures.significant(run.latency.p50_ms)} ms{company}{energy}", *doubts, "recomputed"])
    label_px, right = (round(len(label) * CHARACTER_PX + AROUND_PX) for label in (where, text))
    colour = COLOURS["suspect"] if doubts and run.verdict.state == "valid" else COLOURS.get(run.verdict.state, COLOURS["suspect"])
    return render("badge.svg", label=where, text=text, left=label_px, right=right, colour=colour)
