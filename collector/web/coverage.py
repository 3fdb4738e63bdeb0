"""The coverage of measurements: models by board types, how often and when last, and which were never measured."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.web.markup import Markup, render
from edgemeter.collector.web.view import Links, link

# A cell whose newest run is so much older than the newest of all is stale.
STALE_DAYS = 30


def coverage(found: Sequence[IndexedCase], links: Links, newest_ns: int) -> tuple[Markup, ViewTable]:
    """Return models by board types: how often and when last, and what was never measured."""
    boards = sorted({case.board for case in found})
    grouped: dict[tuple[str, str], list[IndexedCase]] = defaultdict(list)
    for case in found:
        grouped[case.key.model, case.board].append(case)
    models = sorted({case.key.model for case in found})
    cells = {(model, board): _covered(grouped[model, board], links, newest_ns, model, board) for model in models for board in boards}
    lines = [(link(links.to("model", model=model), model), [cells[model, board] for board in boards]) for model in models]
    rows = tuple((model, board, cell["devices"], cell["runs"], cell["last_ns"], cell["is_stale"]) for (model, board), cell in cells.items())
    plain = ViewTable("coverage", ("model", "board", "devices", "runs", "last_started_at_ns", "is_stale"), rows)
    return render("coverage.html", boards=boards, lines=lines), plain


def _covered(members: Sequence[IndexedCase], links: Links, newest_ns: int, model: str, board: str) -> dict[str, Any]:
    """Return one cell: its counts, and how it is shown where there is a run."""
    if not members:
        return {"devices": 0, "runs": 0, "last_ns": None, "is_stale": None}
    last_ns, runs = max(case.newest_ns for case in members), sum(case.runs for case in members)
    p50 = sorted(case.p50_ms for case in members if case.p50_ms is not None)
    devices = len({(case.key.fleet, case.key.device) for case in members})
    return {
        "devices": len({case.key.device for case in members}),
        "runs": runs,
        "last_ns": last_ns,
        "is_stale": newest_ns - last_ns > STALE_DAYS * NS_PER_DAY,
        "figure": link(links.to("compare", model=model, board=board), f"{figures.span(p50[0], p50[-1])} ms" if p50 else "no p50"),
        "detail": f"{figures.count(devices, 'device')}, {figures.count(runs, 'run')}",
        "last": figures.stamp(last_ns)[:10],
    }
