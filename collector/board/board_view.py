"""The views of a site of results: its index with what is verified, stated and set aside, and what was checked of one result."""

from collections.abc import Callable, Mapping, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.bundle.verify import signature_text
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import Figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.board.entries import SiteEntry
from edgemeter.collector.index.index_file import FACETS
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, not_measured
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.overview import coverage
from edgemeter.collector.web.queries import CaseFilter, cases
from edgemeter.collector.web.view import Links, View, ViewColumn, grid, link, note, section, verdict_cell, with_small

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
                f"{pair[1].runtime.threads_text}, {pair[1].scenario.replace('_', ' ')}{_company(pair[1])}",
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


def _company(run: RunRecord) -> str:
    return f", beside {run.together.names}" if run.together else ""


def _provenance(pair: Result) -> str:
    return pair[1].provenance.get("latency", "not stated to be measured")


def _figure(entry: Figure) -> ViewColumn[Result]:
    explanation = "energy per inference, idle included, with its uncertainty (95%)" if entry.name == "energy_gross_mj" else None

    def value(pair: Result) -> float | bool | None:
        # Neither an estimate nor what several models took is the model's energy.
        is_left_out = entry.group == "energy" and not_measured(pair[1], "energy") is not None
        return None if is_left_out else entry.value(pair[1])

    cell: Callable[[Result], str] = _CELLS.get(entry.name) or (lambda pair: figures.typeset(entry.shown(value(pair))))
    return ViewColumn(entry.name, entry.heading, value, cell, explanation, is_optional=entry.is_of_some)


def _p50(pair: Result) -> Markup:
    latency, provenance = pair[1].latency, _provenance(pair)
    low_ms, high_ms = latency.p50_low_ms, latency.p50_high_ms
    bounds = figures.span(low_ms, high_ms) if low_ms is not None and high_ms is not None else ""
    doubt = [element("small", {"class": "doubt"}, provenance)] if provenance != "measured" else []
    return join([with_small(figures.typeset(figures.significant(latency.p50_ms)), bounds), *doubt])


def _energy(run: RunRecord) -> Markup:
    if run.energy is None or (why := not_measured(run, "energy")) is not None:
        return element("span", {"class": "none", "title": run.energy_reason if run.energy is None else why}, "none")
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
