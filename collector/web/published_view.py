"""The published figures: each judged by physics, own runs and the other rows; apart from everything that is ranked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import get_args

import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.judgement import PublishedComparison, PublishedState, RowJudgement
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.reference.imported import ReferenceImport
from edgemeter.collector.reference.judged_table import figure_title
from edgemeter.collector.reference.mlperf import APART, LEGEND, MlperfRow, footnote, published_footnote
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Attributes, Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases, summaries
from edgemeter.collector.web.view import FormInput, Links, View, ViewColumn, ViewRequest, grid, link, note, plain_table, section, with_small

LEAD = "Figures that others state, judged by physics; never ranked with measured ones."
STATES: tuple[PublishedState, ...] = get_args(PublishedState)
# Nobody reads more rows at once, nor more comparisons of one.
SHOWN, COMPARED = 400, 3
MLPERF = "MLPerf"
MEANING = (
    "impossible: contradicts physics, arithmetic or statistics; unclear: a fact that the check needs is not stated;"
    " plausible: no bound that was checked is exceeded."
)
BY = {"vendor": "stated by its vendor", "paper": "stated in a paper", "user": "stated by a user", "second-hand": "second-hand"}
OfficialRow = tuple[ReferenceImport, MlperfRow]


def published_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return the published figures that the address leaves, each with its verdict and the sentence that decides it."""
    references = context.references
    try:
        rows = references.of(_version_of_runs(context), lambda: _cases_of_runs(context))
        imported = [(entry, row) for entry in references.store.imports() for row in entry.rows]
    except ConfigError as error:
        return View("Published figures", element("p", {"class": "caution", "role": "alert"}, f"{error}."), LEAD)
    judged = sorted((entry for entry in rows.judgements if _is_picked(_facets(entry), request)), key=_in_order)
    official_rows = [pair for pair in imported if _is_picked(_official_facets(pair), request)]
    # MLCommons asks that its results stand apart, with its footnote.
    elsewhere = [entry for entry in judged if not entry.row.is_mlperf]
    official = [entry for entry in judged if entry.row.is_mlperf]
    columns = _columns(rows.own_cases, context.links)
    parts = []
    if elsewhere:
        shown_rows = _shown(columns, "published", elsewhere)
        parts.append(section("published", "Published figures", _counted(elsewhere, context.links), *shown_rows))
    if official or official_rows:
        parts.append(_official_section(columns, official, official_rows))
    title = figures.count(len(judged) + len(official_rows), "published figure")
    tables = (
        plain_table("published", columns, elsewhere),
        _evidence_table(judged),
        _comparison_table(judged),
        plain_table("published_mlperf", columns, official),
        plain_table("published_mlperf_rounds", OFFICIAL, official_rows),
    )
    body = join(parts) if parts else note("No published figure matches: pick another model, device, verdict or source.")
    return View(title, body, LEAD, tables, inputs=_inputs([*map(_facets, rows.judgements), *map(_official_facets, imported)], request))


def _version_of_runs(context: ViewContext) -> str:
    query = "SELECT position, (SELECT count(*) FROM stale) FROM place"
    return " ".join(map(str, context.connection.execute(query).fetchone()))


def _cases_of_runs(context: ViewContext) -> Sequence[CaseSummary]:
    return summaries(context.connection, cases(context.connection, CaseFilter()), CaseFilter())


def _facets(judged: RowJudgement) -> dict[str, str]:
    return {"model": judged.row.model, "device": judged.row.device, "verdict": judged.state, "source": judged.row.source}


def _official_facets(result: OfficialRow) -> dict[str, str]:
    imported, row = result
    return {"model": row.model, "device": row.system, "verdict": "", "source": f"{MLPERF} {imported.round}"}


def _is_picked(values: Mapping[str, str], request: ViewRequest) -> bool:
    return all(request.get(name) in ("", value) for name, value in values.items())


def _in_order(judged: RowJudgement) -> tuple[str, ...]:
    # By name, never by value.
    return judged.row.model.casefold(), judged.row.device.casefold(), judged.row.figure, judged.row.key, judged.row.id


def _inputs(every_facets: Sequence[Mapping[str, str]], request: ViewRequest) -> tuple[FormInput, ...]:
    inputs = []
    for name in ("model", "device", "verdict", "source"):
        values = STATES if name == "verdict" else sorted({facets[name] for facets in every_facets}, key=str.casefold)
        options = (("", "all"), *((value, value) for value in values))
        inputs.append(FormInput(name, name.capitalize(), request.get(name), options=options))
    return tuple(inputs)


def _counted(judged: Sequence[RowJudgement], links: Links) -> Markup:
    counts = Counter(entry.state for entry in judged)
    badges = [
        join([_badge(state), " ", link(links.to("published", verdict=state), f"{counts[state]:,}"), " "])
        for state in STATES
        if counts[state]
    ]
    return join([element("p", None, *badges), note(MEANING)])


def _badge(state: str) -> Markup:
    return element("span", {"class": f"badge {state}"}, state)


def _shown(columns: Sequence[ViewColumn[RowJudgement]], name: str, judged: Sequence[RowJudgement]) -> list[Markup]:
    markup, _ = grid(name, columns, judged[:SHOWN], lambda entry: {f"data-{name}": value for name, value in _facets(entry).items()})
    remainder = len(judged) - SHOWN
    return [
        markup,
        *([note(f"{remainder:,} more: pick a model, a device, a verdict or a source; JSON holds all.")] if remainder > 0 else []),
    ]


def _columns(own_cases: Mapping[str, CaseKey], links: Links) -> list[ViewColumn[RowJudgement]]:
    of_row = {name: attrgetter(f"row.{name}") for name in PublishedRow.__struct_fields__}
    shown_columns = [
        ViewColumn("verdict", "Verdict", attrgetter("state"), lambda entry: _badge(entry.state), is_text=True),
        ViewColumn("model", "Model", of_row["model"], _model, is_text=True),
        ViewColumn(
            "device", "Device", of_row["device"], lambda entry: with_small(entry.row.device, entry.row.power_mode or ""), is_text=True
        ),
        ViewColumn("value", "As published", of_row["value"], _value, is_text=True),
        ViewColumn("sentence", "Decided by", attrgetter("sentence"), _reasons, is_text=True),
        ViewColumn("comparisons", "Compared with", _compared, lambda entry: _comparisons(entry, own_cases, links), is_text=True),
        ViewColumn("source", "Source", of_row["source"], _source, is_text=True),
    ]
    names = {column.name for column in shown_columns}
    return [
        *shown_columns,
        *(ViewColumn(name, "", read, is_shown=False) for name, read in of_row.items() if name not in names),
        ViewColumn("canonical_value", "", lambda entry: entry.row.canonical[0], is_shown=False),
        ViewColumn("canonical_unit", "", lambda entry: entry.row.canonical[1], is_shown=False),
        ViewColumn("not_stated", "", lambda entry: list(entry.not_stated), is_shown=False),
        ViewColumn("id", "", attrgetter("row.id"), is_shown=False),
    ]


def _model(judged: RowJudgement) -> Markup:
    row = judged.row
    return with_small(row.model, ", ".join(filter(None, (row.precision, row.runtime, row.backend))))


def _value(judged: RowJudgement) -> Markup:
    row = judged.row
    span = "" if row.low is None or row.high is None else f"{row.low:g} to {row.high:g}"
    return with_small(f"{row.value:.12g} {row.unit}", ", ".join(filter(None, (figure_title(row), span))))


def _reasons(judged: RowJudgement) -> Markup:
    further = [entry for entry in judged.evidence if entry.sentence != judged.sentence]
    checks = [join([_badge(entry.state), f" {entry.sentence}"]) for entry in further]
    unstated = f" ({len(judged.not_stated)} not stated)" if judged.not_stated else ""
    return element(
        "div", {"class": "prose"}, judged.sentence,
        *_folded(figures.count(len(checks), "further check"), checks),
        *_folded(f"conditions{unstated}", _conditions(judged)),
    )  # fmt: skip


def _conditions(judged: RowJudgement) -> list[str]:
    return [f"as stated: {judged.row.conditions}", *([f"not stated: {', '.join(judged.not_stated)}"] if judged.not_stated else [])]


def _folded(summary: str, lines: Sequence[str]) -> list[Markup]:
    return [element("details", None, element("summary", None, summary), part("reasons", lines))] if lines else []


def _source(judged: RowJudgement) -> Markup:
    row = judged.row
    # A page that is left alone loads nothing: this is followed by whoever clicks.
    name = element("a", {"href": row.address, "rel": "external noreferrer"}, row.source)
    by = BY[row.stated_by] if row.stated_by else "not stated by whom"
    cited = _folded("footnote", [published_footnote(row).removesuffix(LEGEND)]) if row.is_mlperf else []
    return join([with_small(name, f"{row.version}, {row.date}, {by}"), *cited])


def _compared(judged: RowJudgement) -> list[str]:
    return [f"{entry.kind} {entry.name}: {_ratio(entry)}" for entry in judged.comparisons]


def _ratio(comparison: PublishedComparison) -> str:
    if comparison.ratio is None:
        return comparison.outcome
    interval = "" if comparison.low is None or comparison.high is None else f" ({figures.span(comparison.low, comparison.high)})"
    return f"{figures.times(comparison.ratio)}{interval}, {comparison.outcome}"


def _comparisons(judged: RowJudgement, own_cases: Mapping[str, CaseKey], links: Links) -> Markup:
    ordered = sorted(judged.comparisons, key=lambda entry: (entry.kind != "own run", entry.ratio is None))
    lines = [_comparison(entry, own_cases.get(entry.name), links) for entry in ordered]
    further = _folded(f"{len(lines) - COMPARED} more", lines[COMPARED:])
    return (
        element("div", {"class": "prose"}, part("reasons", lines[:COMPARED]), *further)
        if lines
        else join([figures.typeset(figures.ABSENT)])
    )


def _comparison(comparison: PublishedComparison, own_case: CaseKey | None, links: Links) -> Markup:
    ratio = element("b", None, _ratio(comparison))
    reference = None
    if comparison.kind == "own run" and own_case is not None:
        over_time = links.to("trend", model=own_case.model, device=own_case.device, fleet=own_case.fleet)
        reference = over_time or links.to("trend", model=own_case.model)
    name = join([f" {comparison.kind}: ", link(reference, comparison.name)])
    return join([ratio, name, *_folded("how", [comparison.sentence])])


def _evidence_table(judged: Sequence[RowJudgement]) -> ViewTable:
    fields = ("rule", "state", "sentence", "value", "limit", "unit")
    rows = [(entry.row.id, *map(evidence.__getattribute__, fields)) for entry in judged for evidence in entry.evidence]
    return ViewTable("published_evidence", ("id", *fields), tuple(rows))


def _comparison_table(judged: Sequence[RowJudgement]) -> ViewTable:
    fields = PublishedComparison.__struct_fields__
    rows = [
        (entry.row.id, *(list(value) if isinstance(value, tuple) else value for value in msgspec.structs.astuple(comparison)))
        for entry in judged
        for comparison in entry.comparisons
    ]
    return ViewTable("published_comparisons", ("id", *fields), tuple(rows))


def _official_section(
    columns: Sequence[ViewColumn[RowJudgement]], judged: Sequence[RowJudgement], results: Sequence[OfficialRow]
) -> Markup:
    tables = _shown(columns, "published-mlperf", judged) if judged else []
    if results:
        markup, _ = grid("published-rounds", OFFICIAL, results[:SHOWN], _official_attributes)
        tables.append(markup)
    if len(results) > SHOWN:
        tables.append(note(f"{len(results) - SHOWN:,} more: pick a model or a system; JSON holds all."))
    return section("published-mlperf", f"{MLPERF}\N{TRADE MARK SIGN} results, not ranked", *tables, note(APART), note(LEGEND))


def _official_attributes(result: OfficialRow) -> Attributes:
    return {f"data-{name}": value for name, value in _official_facets(result).items() if value}


def _footnote(result: OfficialRow) -> str:
    imported, row = result
    return footnote(row, imported.source, imported.retrieved, is_verified=imported.is_verified)


OFFICIAL: list[ViewColumn[OfficialRow]] = [
    ViewColumn("entry", "Entry", lambda result: result[1].id, is_text=True),
    ViewColumn("system", "System", lambda result: result[1].system, is_text=True),
    ViewColumn("submitter", "Submitter", lambda result: result[1].submitter, is_text=True),
    ViewColumn("model", "Model", lambda result: result[1].model, is_text=True),
    ViewColumn("scenario", "Scenario", lambda result: result[1].scenario, is_text=True),
    ViewColumn("value", "Result", lambda result: result[1].value, lambda result: _official_value(result[1]), is_text=True),
    ViewColumn("measure", "", lambda result: result[1].measure, is_shown=False),
    ViewColumn("energy_mj", "Energy, mJ", lambda result: result[1].energy_mj, is_text=True),
    ViewColumn(
        "footnote", "Published as", _footnote,
        lambda result: element("div", {"class": "prose"}, _footnote(result).removesuffix(LEGEND)), is_text=True,
    ),
]  # fmt: skip


def _official_value(row: MlperfRow) -> str:
    return f"{row.value:g} {row.unit_as_published}"
