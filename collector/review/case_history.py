"""The last runs of a case in a line of blocks, with the same in words, and where the page shows them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import speed_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.index.history import open_history
from edgemeter.collector.review.review import Review
from edgemeter.collector.runs.cases import series_of
from edgemeter.collector.runs.run_figures import RunFigures, figures_of
from edgemeter.collector.runs.selection import parse_selection
from edgemeter.collector.runs.store import LedgerStore, open_store
from edgemeter.collector.trend.history import History, RunHistory
from edgemeter.collector.web.view import address

logger = logging.getLogger(__name__)

BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN = 20
# A line that fills its height with less than this share of the figure would show nothing but noise.
LEAST_RANGE = 0.1


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """A figure over the last runs of a case, oldest first: values in the figure's unit, and when the first of them ran."""

    figure: Figure
    values: tuple[float, ...]
    since_ns: int

    @property
    def line(self) -> str:
        """The values as blocks, of which the tallest is the highest."""
        return sparkline(self.values)

    @property
    def words(self) -> str:
        """The same for those who see no blocks: `p50 of the last 12 runs since 2026-11-01: 11.9 to 14.2 ms, newest 14.2 ms`."""
        name = self.figure.heading.removesuffix(self.figure.unit).strip() or self.figure.title
        span, newest = figures.span(min(self.values), max(self.values)), figures.significant(self.values[-1])
        runs, day = figures.count(len(self.values), "run"), figures.stamp(self.since_ns)[:10]
        return f"{name} of the last {runs} since {day}: {span} {self.figure.unit}, newest {newest} {self.figure.unit}"


@dataclass(frozen=True, slots=True)
class ReviewSurroundings:
    """The surroundings of a review: the page's address (empty: none), the histories by the pair's name, and the case that was chosen."""

    page: str = ""
    histories: Mapping[str, CaseHistory] = field(default_factory=dict)
    choice: str = ""

    def link(self, view: str, **fields: str) -> str:
        """Return the address of a view of the page, empty where no page is known."""
        return f"{self.page}/{address(view, fields)}" if self.page else ""


def page_address(text: str | None) -> str:
    """Return the address of the page without its last slash; raises ConfigError unless it is one that a comment can link to."""
    if not text:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment or set(text) & set(" ()<>[]\"'`|\\"):
        raise ConfigError(f"{text!r} is not the address of a page: write https://HOST[:PORT][/PATH]")
    return text.rstrip("/")


def sparkline(values: Sequence[float]) -> str:
    """Return a block for each value, from the lowest to the highest; differences that are small beside the values stay small."""
    low, high = min(values), max(values)
    room = max(high - low, LEAST_RANGE * abs(high))
    if not room:
        return BLOCKS[0] * len(values)
    bottom = (low + high - room) / 2
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int((value - bottom) / room * len(BLOCKS)))] for value in values)


def histories(review: Review, stores: Sequence[str]) -> dict[str, CaseHistory]:
    """Return the history of each pair by its name, from `stores`, else from the ledgers of the sides, else from this device's ledger.

    The runs of the new side belong to it, wherever they are.
    """
    history = _open(review, stores)
    by_name: dict[str, CaseHistory] = {}
    for pair in review.pairs:
        entry = JUDGED[speed_of(pair.case)]
        runs = {run.id: run for run in _points(history, pair.case)}
        runs |= {run.id: figures_of(run) for side in (pair.baseline, pair.case) for run in side.runs if run.id not in runs}
        ordered = sorted(runs.values(), key=lambda run: run.at_ns)
        valued = [(run.at_ns, value) for run in ordered if run.is_usable and (value := run.value(entry.key)) is not None][-SHOWN:]
        if valued:
            by_name[pair.name] = CaseHistory(entry, tuple(value for _, value in valued), valued[0][0])
    return by_name


def _points(history: History, case: CaseSummary) -> list[RunFigures]:
    return [run for run, _ in history.points(series_of(case.newest))]


def _open(review: Review, stores: Sequence[str]) -> History:
    where = list(stores) or list(dict.fromkeys(filter(_is_ledger, (parse_selection(side).where for side in (review.baseline, review.new)))))
    if not where and default_path().exists():
        where = [str(default_path())]
    if not where:
        return RunHistory([])
    try:
        return open_history(where)
    except EdgemeterError as error:
        # What was asked for is an error; else a comment without the past is better than none.
        if stores:
            raise
        logger.warning("the comment is without the past of its cases: %s", error)
        return RunHistory([])


def _is_ledger(where: str) -> bool:
    try:
        return isinstance(open_store(where), LedgerStore)
    except ConfigError:
        return False
