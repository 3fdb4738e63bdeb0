"""The page of one model: how its latencies are distributed, where its energy goes, which runs are doubted and why."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgemeter.collector.compare.comparison import Comparison, Row, comparable
from edgemeter.collector.show import answer, figures, looks, report_charts, report_doubts
from edgemeter.collector.show.distribution import QUANTILES, Distribution
from edgemeter.collector.show.lanes import Lane, distributions
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.report_table import anchor
from edgemeter.collector.show.wording import case_names
from edgemeter.collector.web.book import REFERENCE, Book, SideBySide, baselines, compare
from edgemeter.collector.web.budget import budget
from edgemeter.collector.web.queries import Narrowing, cases, cases_of_baseline, runs_of
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.side_by_side import table_of
from edgemeter.collector.web.view import Asked, View, note, section

FILTERS = ("model", "baseline", "board", "device", "fleet", "precision", "runtime", "days")
# Raw samples are read again for as many cases; more make no chart that can be read.
SAMPLED, BUDGETS = 12, 6
RUNS_DRAWN = 2000


def model(book: Book, asked: Asked, narrowing: Narrowing) -> View:
    """Return the page of the model that was picked, else of the first there is."""
    if narrowing.model is None:
        first = book.connection.execute("SELECT min(model) FROM cases").fetchone()[0]
        narrowing = replace(narrowing, model=first)
    own = cases(book.connection, narrowing)
    if not own:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    baseline = asked.get("baseline") or baselines(book.connection)[0]
    drawn = _of_every_board(own)
    beside = cases_of_baseline(book.connection, baseline, REFERENCE, narrowing)[:SAMPLED]
    found = compare(book, drawn, narrowing, baseline, with_samples=frozenset(case.number for case in (*drawn, *beside)))
    shown = found.comparison
    if not shown.rows:
        return View(str(narrowing.model), note(f"No case of it can be compared with {baseline}."), filters=FILTERS)
    looking = looks.assign(shown.rows)
    table, plain = table_of(found, looking, book.links)
    few = (
        f"{SAMPLED} of {len(own)} cases are drawn, of every type of board the first; pick a device or a board for others."
        if len(own) > SAMPLED
        else ""
    )
    parts = [
        section("cases", "The cases drawn", table, *([note(few)] if few else [])),
        section("runs", "From run to run", _over_runs(book, found, shown, looking)),
        section(
            "queries", "From query to query", report_charts.latency_distributions(shown, looking), note("Of the newest run of each case.")
        ),
        section("energy", "Energy, term by term", _budgets(drawn)),
        section("start", "Cold start and memory", report_charts.cold_start_charts(shown, looking)),
        section("verdicts", "Verdict and evidence", report_doubts.verdicts(shown)),
    ]
    return View(str(narrowing.model), join(parts), " ".join(answer.answer(shown)), (plain,), FILTERS)


def _of_every_board(own: Sequence[IndexedCase]) -> list[IndexedCase]:
    """Return the cases to draw, taken in turn from every type of board."""
    grouped: dict[str, list[IndexedCase]] = {}
    for case in own:
        if case.figures.usable:
            grouped.setdefault(case.board, []).append(case)
    turns = max((len(members) for members in grouped.values()), default=0)
    taken = [members[turn] for turn in range(turns) for members in grouped.values() if turn < len(members)]
    return taken[:SAMPLED]


def _over_runs(book: Book, found: SideBySide, shown: Comparison, looking: looks.Looks) -> Markup:
    """Return how the p50 of the runs is distributed, a lane for each case: a dot is a run."""
    charts = []
    for rows in comparable(shown.rows):
        lanes: list[Lane] = []
        spread: list[Distribution] = []
        for row, name in zip(rows, case_names([row.case for row in rows]), strict=True):
            one = _distribution(book, found.case_of(row.case))
            if one is not None:
                lanes.append(_lane(shown, row, name, one, looking))
                spread.append(one)
        if lanes:
            title = f"{rows[0].case.key.model}: p50 of every run"
            drawing = distributions(lanes, spread, title, "p50 of a run, ms")
            charts.append(
                element(
                    "figure",
                    None,
                    element("figcaption", None, title),
                    drawing,
                    note(f"{sum(one.count for one in spread):,} runs; a dot is a run."),
                )
            )
    return element("div", {"class": "gallery"}, *charts) if charts else note("No run has a p50.")


def _lane(shown: Comparison, row: Row, name: str, one: Distribution, looking: looks.Looks) -> Lane:
    spread_ratio = (one.quantiles[3] - one.quantiles[1]) / one.quantiles[2]
    figure = f"{figures.significant(one.quantiles[2])} ms, middle half {spread_ratio:.1%}"
    return Lane(f"{row.case.key.device} · {name}", figure, looking.of(row), f"#{anchor(shown, row)}")


def _distribution(book: Book, case: IndexedCase) -> Distribution | None:
    p50 = sorted(run.p50_ms for run in runs_of(book.connection, case.number, newest=RUNS_DRAWN) if run.is_usable and run.p50_ms)
    if not p50:
        return None
    low, quarter, half, three_quarters, high = (float(value) for value in np.quantile(p50, QUANTILES))
    return Distribution(len(p50), (low, quarter, half, three_quarters, high), (), tuple(p50))


def _budgets(drawn: Sequence[IndexedCase]) -> Markup:
    with_energy = [case for case in drawn if case.newest.energy]
    if not with_energy:
        reasons = sorted({case.newest.energy_reason or "not measured" for case in drawn})
        return note(f"No energy: {'; '.join(reasons)}.")
    pictures = [element("figure", None, element("figcaption", None, _name(case)), budget(case.newest)) for case in with_energy[:BUDGETS]]
    return element("div", {"class": "gallery"}, *pictures)


def _name(case: IndexedCase) -> str:
    return f"{case.key.device}: {case.key.precision} on {case.key.runtime}, newest run"
