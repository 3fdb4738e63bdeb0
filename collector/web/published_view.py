"""The published figures, judged by three laws and next to own runs.

They are separate from everything that is ranked.
"""

from collections.abc import Sequence
from operator import attrgetter

from edgemeter.agent.base import number_text
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.published.laws import JudgedFigure, judge
from edgemeter.collector.published.listing import (
    APART,
    LEGEND,
    OF_MLPERF,
    STATES,
    OwnRunsByKey,
    apart_from_mlperf,
    figure_text,
    footnote,
    own_text,
    summary,
)
from edgemeter.collector.published.own_runs import own_runs
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.web.queries import CaseFilter, ViewContext, summaries
from edgemeter.collector.web.view import FormInput, View, ViewColumn, ViewGrid, ViewRequest

LEAD = "Figures that others state, judged by physics; never ranked with measured ones."
# Two screens of the served page; JSON, and a page in one file, have all.
SHOWN = 12


def published_view(
    context: ViewContext,
    request: ViewRequest,
    case_filter: CaseFilter,  # noqa: ARG001 - every view has the same signature
) -> View:
    """Return the published figures that match the address.

    Each has its verdict and the deciding sentence.
    """
    try:
        rows = context.published.rows()
    except ConfigError as error:
        return View("Published figures", context.render("message.html", text=f"{error}."), LEAD)
    # By verdict and name, never by value.
    every_figure = sorted(
        judge(rows),
        key=lambda figure: (
            STATES.index(figure.state),
            figure.row.model.casefold(),
            figure.row.device.casefold(),
            figure.row.figure,
        ),
    )
    judged = [
        figure
        for figure in every_figure
        if all(request.get(name) in ("", value) for name, value in _facets(figure).items())
        and all(word in _text(figure) for word in request.get("q").casefold().split())
    ]
    measured = summaries(context.book.cases, CaseFilter())
    runs_by_key = {figure.row.key: own_runs(figure.row, measured) for figure in judged}
    is_file = context.links.is_file
    columns, limit = _columns(runs_by_key), len(judged) if is_file else SHOWN
    elsewhere, official = apart_from_mlperf(judged)
    body = context.render(
        "published.html",
        summary=summary(judged),
        elsewhere=_grid("published", columns, elsewhere[:limit]),
        official=_grid("published-mlperf", columns, official[:limit]),
        hidden=(len(elsewhere) - limit, len(official) - limit),
        of_mlperf=OF_MLPERF,
        notices=(APART, LEGEND),
        footnote=footnote,
        count=len(judged),
        is_file=is_file,
    )
    return View(
        number_text.count(len(judged), "published figure"),
        body,
        LEAD,
        (
            ViewGrid("published", columns, [elsewhere]).plain,
            ViewGrid("published_mlperf", columns, [official]).plain,
            _findings(judged),
        ),
        inputs=_inputs(every_figure, request, can_search=not is_file),
    )


def _facets(figure: JudgedFigure) -> dict[str, str]:
    return {
        "model": figure.row.model,
        "device": figure.row.device,
        "verdict": figure.state,
        "source": figure.row.source,
    }


def _text(figure: JudgedFigure) -> str:
    row = figure.row
    parts = (
        row.model,
        row.precision,
        row.runtime,
        row.backend,
        row.device,
        figure_text(row),
        row.source,
        row.version,
        row.stated_by,
    )
    return " ".join(filter(None, (*parts, figure.state, figure.sentence))).casefold()


def _inputs(
    judged: Sequence[JudgedFigure], request: ViewRequest, *, can_search: bool
) -> tuple[FormInput, ...]:
    inputs = [FormInput("q", "Search", request.get("q"), "words")] if can_search else []
    for name in ("model", "device", "verdict", "source"):
        values = (
            STATES
            if name == "verdict"
            else sorted({_facets(figure)[name] for figure in judged}, key=str.casefold)
        )
        options = (("", "all"), *((value, value) for value in values))
        inputs.append(FormInput(name, name.capitalize(), request.get(name), options=options))
    return tuple(inputs)


def _grid(
    name: str, columns: Sequence[ViewColumn[JudgedFigure]], judged: Sequence[JudgedFigure]
) -> ViewGrid[JudgedFigure]:
    return ViewGrid(
        name,
        columns,
        [judged],
        lambda figure: {f"data-{facet}": value for facet, value in _facets(figure).items()},
    )


def _columns(runs_by_key: OwnRunsByKey) -> list[ViewColumn[JudgedFigure]]:
    of_row = {name: attrgetter(f"row.{name}") for name in PublishedRow.__struct_fields__}

    def own_texts(figure: JudgedFigure) -> list[str]:
        return [own_text(run, figure.row.kind.unit) for run in runs_by_key[figure.row.key]]

    def settings(figure: JudgedFigure) -> str:
        return ", ".join(
            filter(None, (figure.row.precision, figure.row.runtime, figure.row.backend))
        )

    shown_columns = [
        ViewColumn("verdict", "Verdict", attrgetter("state"), is_text=True),
        ViewColumn("model", "Model", of_row["model"], None, settings, is_text=True),
        ViewColumn("device", "Device", of_row["device"], is_text=True),
        ViewColumn(
            "value",
            "As published",
            of_row["value"],
            lambda figure: figure_text(figure.row),
            is_text=True,
        ),
        ViewColumn("sentence", "Decided by", attrgetter("sentence"), is_text=True),
        ViewColumn("own_runs", "Own runs", own_texts, is_text=True),
        ViewColumn("source", "Source", of_row["source"], is_text=True),
    ]
    names = {column.name for column in shown_columns}
    return [
        *shown_columns,
        *(ViewColumn(name, "", read) for name, read in of_row.items() if name not in names),
        ViewColumn("canonical_value", "", attrgetter("row.canonical")),
    ]


def _findings(judged: Sequence[JudgedFigure]) -> ViewTable:
    fields = ("law", "state", "sentence", "value", "limit", "unit")
    rows = [
        (figure.row.model, figure.row.figure, *map(entry.__getattribute__, fields))
        for figure in judged
        for entry in figure.findings
    ]
    return ViewTable("published_findings", ("model", "figure", *fields), tuple(rows))
