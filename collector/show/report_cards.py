"""The cards at the top of the report: of one model on one device a card per figure, of more a card for each."""

from collections.abc import Sequence

from edgemeter.collector.compare.comparison import Row
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.show import answer, figures
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.wording import metric_name, runtime_name

# More cards than these are no answer any more; the table has all.
MOST = 9


def cards(groups: Sequence[answer.Group]) -> Markup:
    """Return the cards: the fastest case of each group stands for it."""
    if len(groups) == 1:
        return element("div", {"class": "cards figures"}, *_of_figures(groups[0].fastest))
    more = f"{len(groups) - MOST} more pairs of device and model are in the table."
    note = element("p", {"class": "note"}, more) if len(groups) > MOST else ""
    return join([element("div", {"class": "cards"}, *(_of_case(group.fastest) for group in groups[:MOST])), note])


def _card(heading: str, figure: str, unit: str, lines: Sequence[str]) -> Markup:
    """Return a card; where there is no figure it says `none`, and the lines say why."""
    is_there = figure != figures.ABSENT
    big = element("p", {"class": "figure"}, figure if is_there else "none", element("small", None, f" {unit}") if is_there else "")
    items = element("ul", None, *(element("li", None, line) for line in lines if line))
    return element("section", {"class": "card"}, element("h3", None, heading), big, items)


def _of_figures(row: Row) -> list[Markup]:
    case = row.case
    metric = metric_name(case.accuracy.metric) if case.accuracy else ""
    ratio = row.ratios.peak_memory
    memory = f"{figures.typeset(figures.times(ratio))} the reference's" if ratio else ""
    return [
        _card("Latency", figures.significant(median_of(case.p50_ms)), "ms p50", [_ratio(row), _how(row)]),
        _card("Accuracy", figures.accuracy(median_of(case.accuracy_value)), metric, [_difference(row), case.accuracy_reason or ""]),
        _card("Energy", _gross(row), "mJ gross", [case.energy.scope if case.energy else case.energy_reason or ""]),
        _card("Memory", figures.significant(median_of(case.peak_mb)), "MB peak", [memory]),
    ]


def _of_case(row: Row) -> Markup:
    case = row.case
    accuracy = (
        f"{metric_name(case.accuracy.metric)} {figures.accuracy(median_of(case.accuracy_value))}" if case.accuracy else "accuracy not known"
    )
    energy = f"{_gross(row)} mJ gross, {case.energy.scope}" if case.energy else "energy not measured"
    difference = figures.typeset(figures.difference(row.ratios.accuracy_difference))
    lines = [_how(row), _ratio(row), accuracy if row.ratios.accuracy_difference is None else f"{accuracy} ({difference})", energy]
    return _card(f"{case.key.model} on {case.key.device}", figures.significant(median_of(case.p50_ms)), "ms p50", lines)


def _how(row: Row) -> str:
    return f"{row.case.key.precision} on {runtime_name(row.case)}{', suspect' if row.case.suspect else ''}"


def _ratio(row: Row) -> str:
    return answer.speed(row)


def _difference(row: Row) -> str:
    difference = row.ratios.accuracy_difference
    return "" if difference is None else f"{figures.typeset(figures.difference(difference))} to the reference"


def _gross(row: Row) -> str:
    energy = row.case.energy
    return figures.with_uncertainty(energy.gross_mj.median, energy.gross_u_mj) if energy else figures.ABSENT
