"""The columns of the report's summary table: what a cell shows, and the value that the column is sorted by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.collector.compare.comparison import Row
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.notes import Notes
from edgemeter.collector.show.wording import accuracy_name


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `tells` explains the heading, `has_bar` draws the value as a bar below the figure."""

    heading: str
    tells: str
    cell: Callable[[Row], Markup]
    value: Callable[[Row], float | None]
    has_bar: bool = False


def columns(rows: Sequence[Row], notes: Notes) -> list[Column]:
    """Return the columns; what a cell has no room for is cited from `notes`."""
    energy = [
        Column("Gross mJ", "energy per inference, idle included, 95 %", lambda row: _gross(row, notes), _value(lambda case: case.gross_mj)),
        Column("Net mJ", "energy per inference, idle taken off, 95 %", _net, _value(lambda case: case.net_mj)),
    ]
    return [
        _spread("p50 ms", "median latency of an inference", lambda case: case.p50_ms, has_bar=True),
        Column("to ref", "p50 against the reference's p50", lambda row: _against(row, notes), lambda row: row.ratios.p50),
        _spread("p90 ms", "nine of ten inferences are faster", lambda case: case.p90_ms),
        _spread("per s", "inferences per second", lambda case: case.throughput_per_s),
        Column(
            accuracy_name([row.case for row in rows]),
            "accuracy of the same model file, and its difference to the reference",
            lambda row: _accuracy(row, notes),
            _value(lambda case: case.accuracy_value),
        ),
        _spread("Peak MB", "highest resident memory of the process", lambda case: case.peak_mb),
        *(energy if any(row.case.energy for row in rows) else energy[:1]),
        Column("Runs", "independent processes", lambda row: join([str(len(row.case.runs))]), lambda row: len(row.case.runs)),
        Column("Verdict", "whether to believe the runs", _verdict, lambda row: row.case.suspect),
    ]


def _value(figure: Callable[[Summary], Spread | None]) -> Callable[[Row], float | None]:
    return lambda row: median_of(figure(row.case))


def _spread(heading: str, tells: str, figure: Callable[[Summary], Spread | None], *, has_bar: bool = False) -> Column:
    def cell(row: Row) -> Markup:
        found = figure(row.case)
        if found is None:
            return join([figures.typeset(figures.ABSENT)])
        median, span = figures.significant(found.median), figures.span(found.low, found.high)
        return _over(median, "" if span == median else span)

    return Column(heading, tells, cell, _value(figure), has_bar)


def _over(figure: str, beside: str) -> Markup:
    """Return a figure with something small below it."""
    return join([figure, element("small", None, beside)] if beside else [figure])


def _none(note: str, notes: Notes, word: str = "none") -> Markup:
    number = notes.cite(note)
    return element("span", {"class": "none", "title": note}, word, element("sup", None, f" {number}"))


def _against(row: Row, notes: Notes) -> Markup:
    if row.not_ranked:
        return _none(row.not_ranked, notes, "not ranked")
    if row.is_reference:
        return element("em", None, "reference")
    key = row.reference.key
    is_other = (key.precision, key.runtime) != (row.case.key.precision, row.case.key.runtime)
    beside = element("small", {"title": row.choice}, f"{key.precision} {key.runtime}" if is_other else "same kind")
    return join([figures.typeset(figures.times(row.ratios.p50)), beside])


def _accuracy(row: Row, notes: Notes) -> Markup:
    if row.case.accuracy is None:
        return _none(f"No accuracy: {row.case.accuracy_reason}", notes)
    difference = "" if row.is_reference else figures.typeset(figures.difference(row.ratios.accuracy_difference))
    return _over(figures.accuracy(row.case.accuracy.value.median), difference)


def _gross(row: Row, notes: Notes) -> Markup:
    energy = row.case.energy
    if energy is None:
        return _none(f"No energy: {row.case.energy_reason}", notes)
    ratio = None if row.is_reference else row.ratios.energy_gross
    beside = energy.scope if ratio is None else f"{energy.scope}, {figures.typeset(figures.times(ratio))}"
    return _over(figures.with_uncertainty(energy.gross_mj.median, energy.gross_u_mj), beside)


def _net(row: Row) -> Markup:
    energy = row.case.energy
    if energy is None:
        return join([figures.typeset(figures.ABSENT)])
    if energy.net_mj is None:
        return element("span", {"class": "none"}, energy.net_state.replace("_", " "))
    ratio = None if row.is_reference else row.ratios.energy_net
    beside = "" if ratio is None else figures.typeset(figures.times(ratio))
    return _over(figures.with_uncertainty(energy.net_mj.median, energy.net_u_mj), beside)


def _verdict(row: Row) -> Markup:
    if not row.case.suspect:
        return join(["valid"])
    return element("a", {"class": "doubt", "href": "#verdicts", "title": "; ".join(row.case.verdict_reasons)}, "? suspect")
