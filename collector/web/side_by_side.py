"""The view that compares: every case beside its baseline, like with like, and the front of what nothing beats."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgemeter.collector.compare.comparison import Comparison, Row, comparable
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.show import answer, figures, looks, report_charts
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.report_table import anchor, key
from edgemeter.collector.show.wording import accuracy_name, case_names, listed, names, runtime_name
from edgemeter.collector.web.book import Book, SideBySide, baselines, compare
from edgemeter.collector.web.queries import Narrowing, cases, count_cases
from edgemeter.collector.web.view import Asked, Column, Links, Table, View, grid, link, note, section

FILTERS = ("baseline", "model", "board", "device", "fleet", "precision", "runtime", "days")
# A page is read by people: more cases than these are on several.
CASES_SHOWN = 150
LONGEST_NUMBER = 9
# With more devices than this a colour stands for a type of board.
DEVICES_IN_COLOUR = 7
NAMED = 3


def side_by_side(book: Book, asked: Asked, narrowing: Narrowing) -> View:
    """Return the comparison with the baseline that was picked, else with the first there is."""
    offered = baselines(book.connection)
    if not offered:
        return View("Nothing to compare yet", note("The ledger holds no run."), filters=FILTERS)
    baseline = asked.get("baseline") or offered[0]
    count = count_cases(book.connection, narrowing)
    place = _page(asked, count)
    own = cases(book.connection, narrowing, limit=CASES_SHOWN, offset=place * CASES_SHOWN)
    found = compare(book, own, narrowing, baseline)
    narrowed = _pages(asked, place, count, book.links)
    comparison = found.comparison
    left_out = _left_out(comparison)
    if not comparison.rows:
        body = join([narrowed, section("left-out", "Left out", left_out)])
        return View(f"Nothing can be compared with {baseline}", body, filters=FILTERS)
    looking = looks.assign(comparison.rows, most_devices=DEVICES_IN_COLOUR)
    table, plain = table_of(found, looking, book.links)
    fronts = [element("div", None, drawn(comparison, looking)) for drawn in (report_charts.latency_front, report_charts.energy_charts)]
    parts = [
        narrowed,
        section(
            "front",
            "Latency and energy against accuracy",
            report_charts.legend(comparison, looking),
            element("div", {"class": "pair"}, *fronts),
        ),
        section(
            "table",
            "All cases",
            table,
            note("Medians over runs; below them the range over runs. A ratio above 1 takes longer, or more, than the baseline."),
        ),
        section("left-out", "Left out", left_out),
    ]
    lead = " ".join(answer.answer(_of_measured(comparison)))
    return View(_title(comparison), join(parts), lead, (plain,), FILTERS)


def _of_measured(comparison: Comparison) -> Comparison:
    """Return the rows that were measured, all where none was: what was replayed or simulated does not share their headline."""
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    return replace(comparison, rows=measured) if any(not row.is_reference for row in measured) else comparison


def _title(comparison: Comparison) -> str:
    """Return who is compared with whom, counted where names would be too many."""
    devices = {(row.case.key.fleet, row.case.key.device) for row in comparison.rows if not row.is_reference}
    if len(devices) <= NAMED:
        return answer.title(comparison)
    models = names(row.case.key.model for row in comparison.rows if not row.is_reference)
    references = names(row.reference.key.device for row in comparison.rows)
    return f"{listed(models, 3)} on {figures.count(len(devices), 'device')}, against {listed(references, 3)}"


def _page(asked: Asked, count: int) -> int:
    """Return the page that was picked, from 0, one that there is."""
    text = asked.get("page")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER else 1
    return min(max(number, 1), max(1, -(-count // CASES_SHOWN))) - 1


def _pages(asked: Asked, place: int, count: int, links: Links) -> Markup:
    """Return what of more cases than a page holds this is, and the way to the others."""
    if count <= CASES_SHOWN:
        return join([])
    first, last = place * CASES_SHOWN + 1, min(count, (place + 1) * CASES_SHOWN)
    fields = {name: value for name, value in asked.fields.items() if name != "page"}
    before = [" ", link(links.to("compare", **fields, page=str(place)), "The ones before")] if place else []
    after = [" ", link(links.to("compare", **fields, page=str(place + 2)), "The next")] if last < count else []
    said = f"Cases {first:,} to {last:,} of {count:,}, by model and device; pick a model, a board or a device for less."
    return element("p", {"class": "caution pages"}, said, *before, *after)


def _left_out(comparison: Comparison) -> Markup:
    if not comparison.left_out:
        return element("p", None, "Nothing was left out.")
    counted = Counter(entry.reason for entry in comparison.left_out)
    lines = [
        element("li", None, element("b", None, figures.count(number, "case")), f": {reason}") for reason, number in counted.most_common(60)
    ]
    return element("ul", {"class": "reasons"}, *lines)


def table_of(found: SideBySide, looking: looks.Looks, links: Links) -> tuple[Markup, Table]:
    """Return the cases as a table to look at, grouped by what may be compared, and in plain form."""
    comparison = found.comparison
    called = dict(zip((id(row) for row in comparison.rows), case_names([row.case for row in comparison.rows]), strict=True))
    columns = _columns(found, looking, links, called)
    parts = []
    for rows in comparable(comparison.rows):
        newest = rows[0].case.newest
        data = f" {newest.model.task}, {newest.dataset.name} ({figures.count(newest.dataset.images, 'image')}), {newest.scenario}"
        heading = element("h3", None, link(links.to("model", model=newest.model.name), newest.model.name), element("small", None, data))
        markup, _ = grid(
            newest.model.name, columns, rows, lambda row: {"id": anchor(comparison, row), "class": _class(row), **report_charts.facts(row)}
        )
        parts.append(element("div", {"data-model": newest.model.name}, heading, markup))
    return join(parts), grid("comparison", columns, comparison.rows)[1]


def _class(row: Row) -> str | None:
    return " ".join([*(["reference"] if row.is_reference else []), *(["suspect"] if row.case.suspect else [])]) or None


def _columns(found: SideBySide, looking: looks.Looks, links: Links, called: dict[int, str]) -> list[Column[Row]]:
    def runs(row: Row) -> int:
        return found.case_of(row.case).figures.usable

    return [
        Column("device", "Device", lambda row: row.case.key.device, lambda row: _device(row, looking, links), is_text=True),
        Column("case", "Case", lambda row: called[id(row)], lambda row: _name(row, called[id(row)], links), is_text=True),
        *(
            Column(name, name, _of_key(name), is_shown=False)
            for name in ("fleet", "role", "model", "precision", "runtime", "runtime_version", "scenario", "dataset_sha256")
        ),
        Column("board", "Board", lambda row: found.case_of(row.case).board, is_shown=False),
        *_spread("latency_p50", "ms", "p50 ms", lambda row: row.case.p50_ms),
        Column(
            "latency_p50_ratio",
            "to baseline",
            lambda row: row.ratios.p50,
            _ratio,
            "p50 against the baseline's p50, what that means, and its 95 % interval over days or runs",
        ),
        Column("latency_p50_ratio_low", "", lambda row: _bound(row, 0), is_shown=False),
        Column("latency_p50_ratio_high", "", lambda row: _bound(row, 1), is_shown=False),
        Column("latency_judgement", "", lambda row: row.judgements.latency.words if row.judgements.latency else None, is_shown=False),
        *_spread("latency_p90", "ms", "p90 ms", lambda row: row.case.p90_ms),
        *_spread("throughput", "per_s", "per s", lambda row: row.case.throughput_per_s),
        Column(
            "accuracy",
            accuracy_name([row.case for row in found.comparison.rows]),
            lambda row: median_of(row.case.accuracy_value),
            _accuracy,
        ),
        Column("accuracy_difference", "", lambda row: row.ratios.accuracy_difference, is_shown=False),
        *_spread("memory_peak", "mb", "Peak MB", lambda row: row.case.peak_mb),
        Column(
            "energy_gross_mj",
            "Gross mJ",
            lambda row: median_of(row.case.gross_mj),
            _gross,
            "energy per inference, idle included, with its uncertainty (95 %)",
        ),
        Column("energy_gross_u_mj", "", lambda row: row.case.energy.gross_u_mj if row.case.energy else None, is_shown=False),
        Column("energy_scope", "", lambda row: row.case.energy.scope if row.case.energy else None, is_shown=False),
        Column("energy_gross_ratio", "", lambda row: row.ratios.energy_gross, is_shown=False),
        Column("runs", "Runs", runs),
        Column("provenance", "Provenance", lambda row: row.case.key.provenance, is_shown=False),
        Column("verdict", "Verdict", lambda row: row.case.verdict, lambda row: _verdict(row, found), is_text=True),
        Column("baseline", "", lambda row: row.reference.key.device, is_shown=False),
        Column("baseline_choice", "", lambda row: row.choice, is_shown=False),
        Column("not_ranked_reason", "", lambda row: row.not_ranked, is_shown=False),
    ]


def _of_key(name: str) -> Callable[[Row], str]:
    return lambda row: str(getattr(row.case.key, name))


def _spread(name: str, unit: str, heading: str, figure: Callable[[Row], Spread | None]) -> Sequence[Column[Row]]:
    def cell(row: Row) -> Markup:
        found = figure(row)
        if found is None:
            return join([figures.typeset(figures.ABSENT)])
        median, span = figures.significant(found.median), figures.span(found.low, found.high)
        return join([median, element("small", None, "" if span == median else span)])

    return (
        Column(f"{name}_{unit}", heading, lambda row: median_of(figure(row)), cell),
        Column(f"{name}_min_{unit}", "", lambda row: found.low if (found := figure(row)) else None, is_shown=False),
        Column(f"{name}_max_{unit}", "", lambda row: found.high if (found := figure(row)) else None, is_shown=False),
    )


def _device(row: Row, looking: looks.Looks, links: Links) -> Markup:
    name = link(links.to("device", fleet=row.case.key.fleet, device=row.case.key.device), row.case.key.device)
    role = "baseline" if row.is_reference else row.case.newest.environment.board or "unknown board"
    return join([key(looking.of(row)), name, element("small", None, role)])


def _name(row: Row, name: str, links: Links) -> Markup:
    case = row.case.key
    reference = links.to("trend", model=case.model, device=case.device, fleet=case.fleet) or links.to("trend", model=case.model)
    return join([link(reference, name), element("small", None, runtime_name(row.case))])


def _ratio(row: Row) -> Markup:
    if row.not_ranked:
        return element("span", {"class": "none", "title": row.not_ranked}, "not ranked")
    if row.is_reference:
        return element("em", None, "baseline")
    if row.ratios.p50 is None:
        return join([figures.typeset(figures.ABSENT)])
    bounds = row.ratios.p50_interval
    between = f"95 %: {figures.typeset(figures.span(*bounds))}" if bounds else "no interval"
    judged = row.judgements.latency
    other = row.reference.key
    is_other = (other.precision, other.runtime) != (row.case.key.precision, row.case.key.runtime)
    kind = f"{other.precision} {other.runtime}" if is_other else ""
    said = element("small", {"title": judged.words}, judged.words.partition(":")[0].partition(" (")[0]) if judged else ""
    beside = element("small", {"title": row.choice}, between)
    against = element("small", {"title": row.choice}, f"against {kind}") if kind else ""
    return join([figures.typeset(figures.times(row.ratios.p50)), said, beside, against])


def _bound(row: Row, which: int) -> float | None:
    return row.ratios.p50_interval[which] if row.ratios.p50_interval else None


def _accuracy(row: Row) -> Markup:
    accuracy = row.case.accuracy
    if accuracy is None:
        return element("span", {"class": "none", "title": row.case.accuracy_reason or "not scored"}, "none")
    difference = "" if row.is_reference else figures.difference(row.ratios.accuracy_difference)
    return join(
        [
            figures.accuracy(accuracy.value.median),
            element("small", None, figures.typeset(difference) if difference not in {"", figures.ABSENT} else ""),
        ]
    )


def _gross(row: Row) -> Markup:
    energy = row.case.energy
    if energy is None:
        return element("span", {"class": "none", "title": row.case.energy_reason or "not measured"}, "none")
    ratio = None if row.is_reference else row.ratios.energy_gross
    beside = energy.scope if ratio is None else f"{energy.scope}, {figures.typeset(figures.times(ratio))}"
    return join([figures.with_uncertainty(energy.gross_mj.median, energy.gross_u_mj), element("small", None, beside)])


def _verdict(row: Row, found: SideBySide) -> Markup:
    case, provenance = found.case_of(row.case).figures, row.case.key.provenance
    said = element("span", {"class": "doubt"}, f"? {case.suspect} of {case.usable} suspect") if case.suspect else "valid"
    return join([said, element("small", None, "" if provenance == "measured" else provenance)])
