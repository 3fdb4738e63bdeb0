"""The trend: how a figure went over the days, a chart for each case, with what changed on the device and what was found."""

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.show.markup import element, join
from edgemeter.collector.web.book import Book
from edgemeter.collector.web.queries import Narrowing, cases_of_every_board, count_cases, since_ns
from edgemeter.collector.web.series import DEFAULT_METRIC, METRICS, of_one_series, series, titles
from edgemeter.collector.web.view import Asked, Table, View, note, section

FILTERS = ("metric", "model", "board", "device", "fleet", "precision", "runtime", "days")
CHARTS = 24
# A series may have several cases, one for each version of the runtime.
CASES_READ = 2 * CHARTS


def trend(book: Book, asked: Asked, narrowing: Narrowing) -> View:
    """Return the trend of the metric that was picked, of as many cases as a page holds: some of every board type, what moved first.

    Raises:
        ConfigError: there is no such metric.
    """
    metric = METRICS.get(asked.get("metric") or DEFAULT_METRIC)
    if metric is None:
        message = f"metric={asked.get('metric')!r} is no figure: there are {', '.join(METRICS)}"
        raise ConfigError(message)
    count = count_cases(book.connection, narrowing)
    picked = cases_of_every_board(book.connection, narrowing.without("days"), CASES_READ)
    if not picked:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    start = min(case.figures.first_ns for case in picked)
    if narrowing.days is not None:
        start = max(start, since_ns(book.connection, narrowing.days))
    span = (float(start), float(max(start + 1, *(case.figures.last_ns for case in picked))))
    groups = of_one_series(picked)
    shown = [
        found
        for members, title in zip(groups[:CHARTS], titles(groups)[:CHARTS], strict=True)
        if (found := series(book, members, metric, days=narrowing.days, span=span, title=title))
    ]
    # What moved is what people come for; a series of one day says little.
    shown.sort(key=lambda one: (not one.has_step, -one.points))
    rows = tuple(row for one in shown for row in one.table.rows)
    tables = (Table("points", shown[0].table.columns, rows),) if shown else ()
    has_more = len(groups) > CHARTS or count > CASES_READ
    more = f" More series match than the {CHARTS} drawn: pick a device, a board or a model." if has_more else ""
    explained = "Bars are 95 % intervals of a run; lines are medians between the numbered strokes; hollow: suspect." + more
    if not shown:
        body = note(f"No run here has this figure: {metric.title}.")
        return View(f"Trend: {metric.title}", body, filters=FILTERS)
    gallery = element("div", {"class": "gallery"}, *(one.figure for one in shown))
    return View(f"Trend: {metric.title}", join([section("charts", "Over the days", gallery, note(explained))]), "", tables, FILTERS)
