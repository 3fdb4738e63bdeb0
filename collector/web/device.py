"""The page of one device: what it is, where it stands among its like, what changed on it, its newest runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from edgemeter.agent.health.contract import Health
from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.cases import UNKNOWN_BOARD
from edgemeter.collector.keep import device_health
from edgemeter.collector.show import drawing, figures
from edgemeter.collector.show.axis import linear
from edgemeter.collector.show.drawing import Frame
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.web.book import Book
from edgemeter.collector.web.queries import Narrowing, cases, runs_of
from edgemeter.collector.web.run_figures import RunFigures
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.series import METRICS, of_one_series, series, titles
from edgemeter.collector.web.view import Asked, Column, Links, Table, View, grid, link, note, section

FILTERS = ("device", "fleet", "days")
RUNS_SHOWN = 60
ID_SHOWN = 24
CHARTS = 8
# What a device is held against the others of its type in, and how it is called.
BESIDE = {"p50_ms": "p50 latency", "gross_mj": "gross energy"}


@dataclass(frozen=True, slots=True)
class _RunLine:
    case: IndexedCase
    run: RunFigures


def device(book: Book, asked: Asked, narrowing: Narrowing) -> View:  # noqa: ARG001 - every view is asked alike
    """Return the page of the device that was picked, else of the first there is."""
    if narrowing.device is None:
        found = book.connection.execute("SELECT device FROM cases ORDER BY device LIMIT 1").fetchone()
        narrowing = Narrowing(device=found[0] if found else "", days=narrowing.days)
    own = cases(book.connection, Narrowing(device=narrowing.device, fleet=narrowing.fleet, days=narrowing.days))
    if not own:
        return View("No run matches", note("There is no run of such a device here."), filters=FILTERS)
    newest = max(own, key=lambda case: case.figures.last_ns)
    runs, table = _runs(book, own)
    parts = [
        section("machine", "What it is", _machine(book, newest)),
        section("beside", "Among its like", _beside(book, own, newest.board, narrowing)),
        section("trend", "Over the days", _trends(book, own)),
        section("runs", "Newest runs", runs),
    ]
    simulated = "" if newest.key.provenance == "measured" else f", {newest.key.provenance}"
    runs_in_all = figures.count(sum(case.figures.runs for case in own), "run")
    lead = (
        f"{newest.board}, fleet {newest.key.fleet}, role {newest.key.role}{simulated}: {runs_in_all} of {figures.count(len(own), 'case')}."
    )
    return View(newest.key.device, join(parts), lead, (table,), FILTERS)


def _machine(book: Book, newest: IndexedCase) -> Markup:
    run = newest.newest
    said = next((one for one in book.source.devices() if (one.fleet, one.device) == (newest.key.fleet, newest.key.device)), None)
    facts = {"State": f"{said.state or 'not told'}, heard {figures.stamp(said.changed_ns)} UTC" if said else None, **facts_of(run)}
    return told({**facts, **(_health_of(said.health) if said and said.health else {})})


def _health_of(health: Health) -> dict[str, str | None]:
    """Return what the device said of its own state, in words."""
    days = device_health.certificate_days(health, time.time_ns())
    disk, runs = health.disk, health.runs
    free_ratio = disk.free_bytes / disk.size_bytes if disk.free_bytes is not None and disk.size_bytes else None
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in runs.verdicts.items())
    return {
        "Health told": f"{figures.stamp(health.told_ns)} UTC by its own clock",
        "Look at": "; ".join(device_health.look_at(health, time.time_ns())) or "nothing",
        "Agent now": health.agent,
        "Power sensors": device_health.sensors(health),
        "Certificate": None if days is None else f"ends in {days:.0f} days",
        "Clock": device_health.clock(health),
        "Disk": None if free_ratio is None else f"{figures.significant((disk.free_bytes or 0) / 1e9)} GB free, {free_ratio:.0%}",
        "Last runs": verdicts or None,
        "Before this start": device_health.last_words(health),
    }


def facts_of(run: RunRecord) -> dict[str, str | None]:
    """Return what the machine of a run is, in words."""
    here = run.environment
    return {
        "Board": here.board,
        "Processor": " ".join(filter(None, (here.soc, here.cpu))) or None,
        "Cores": str(here.cores),
        "Memory": None if here.memory_mb is None else f"{figures.significant(here.memory_mb / 1000)} GB",
        "System": here.os,
        "Kernel": f"{here.kernel} {here.arch}",
        "Firmware": here.firmware,
        "Governor": here.governor,
        "Power mode": here.power_mode,
        "Virtualisation": here.virtualisation,
        "Attached": ", ".join(here.attached) or None,
        "Agent": here.agent,
        "Python": here.python,
        "Libraries": ", ".join(f"{name} {version}" for name, version in here.libraries.items()) or None,
    }


def told(facts: dict[str, str | None]) -> Markup:
    """Return facts as a list; what is not told stands together in one line."""
    untold = ", ".join(name for name, text in facts.items() if not text)
    lines = {**{name: text for name, text in facts.items() if text}, **({"Not told": untold} if untold else {})}
    return element(
        "dl", None, *(element("div", None, element("dt", None, name), element("dd", None, text)) for name, text in lines.items() if text)
    )


def _beside(book: Book, own: Sequence[IndexedCase], board: str, narrowing: Narrowing) -> Markup:
    """Return where each case of the device stands among the same case of the other devices of its type."""
    if board == UNKNOWN_BOARD:
        return note("It does not tell what board it is, so no other is known to be of its type.")
    drawn, alone = [], []
    for case in own:
        others = [
            one
            for one in cases(
                book.connection, Narrowing(board=board, model=case.key.model, precision=case.key.precision, days=narrowing.days)
            )
            if (one.key.fleet, one.key.device) != (case.key.fleet, case.key.device) and _is_like(one, case)
        ]
        for metric, called in BESIDE.items():
            mine = case.figures.spread(metric)
            theirs = [spread.median for one in others if (spread := one.figures.spread(metric))]
            if mine is None:
                continue
            name = f"{case.key.model}, {case.key.precision} on {case.key.runtime}: {called}"
            if theirs:
                drawn.append(_strip(name, mine.median, theirs, "ms" if metric == "p50_ms" else "mJ"))
            else:
                alone.append(name)
    parts = [element("div", {"class": "gallery"}, *drawn)] if drawn else []
    if alone:
        parts.append(note(f"No other {board} ran: {'; '.join(alone)}."))
    return join(parts)


def _is_like(one: IndexedCase, other: IndexedCase) -> bool:
    """Return whether two cases are the same but for the device; energies of other meters do not stand in one strip."""
    names = (
        "provenance",
        "model",
        "task",
        "runtime",
        "backend",
        "threads",
        "precision",
        "batch",
        "scenario",
        "samples_per_query",
        "target_per_s",
        "dataset_sha256",
        "input_values",
        "power_mode",
    )
    same_meter = one.figures.energy_kind == other.figures.energy_kind
    return same_meter and all(getattr(one.key, name) == getattr(other.key, name) for name in names)


def _strip(name: str, mine: float, theirs: Sequence[float], unit: str) -> Markup:
    every = [*theirs, mine]
    low, high = min(every), max(every)
    room = (high - low) * 0.06
    frame = Frame(10, 8, drawing.WIDTH - 12, 50)
    axis = linear(low - room, high + room, frame.left, frame.right)
    ticks = "".join(f"M{axis.place(value):.1f} 18v22" for value in theirs)
    middle = median(theirs)
    x, centre = axis.place(mine), axis.place(middle)
    parts = [
        *drawing.across(frame, axis, unit),
        element("path", {"d": ticks, "class": "strip"}),
        drawing.line(centre, 12, centre, 46, "median plain"),
        element("path", {"d": f"M{x:.1f} 10l6 -8h-12zM{x:.1f} 10v38", "class": "mark s1"}),
    ]
    below = sum(value < mine for value in theirs)
    difference, others = figures.typeset(f"{mine / middle - 1:+.1%}"), figures.count(len(theirs), "other device")
    says = f"{figures.significant(mine)} {unit}, {difference} to the median of {others}; {below} of them lower."
    caption = element("figcaption", None, name)
    return element("figure", None, caption, drawing.sheet(frame.bottom + 44, name, *parts), note(says))


def _trends(book: Book, own: Sequence[IndexedCase]) -> Markup:
    span = (float(min(case.figures.first_ns for case in own)), float(max(case.figures.last_ns for case in own) + 1))
    groups = of_one_series(own)
    shown = [
        found.figure
        for members, title in zip(groups[:CHARTS], titles(groups)[:CHARTS], strict=True)
        for name in BESIDE
        if (found := series(book, members, METRICS[name], days=None, span=span, title=title))
    ]
    return element("div", {"class": "gallery"}, *shown) if shown else note("No run has a latency or an energy.")


def _runs(book: Book, own: Sequence[IndexedCase]) -> tuple[Markup, Table]:
    lines = [_RunLine(case, run) for case in own for run in runs_of(book.connection, case.number, newest=RUNS_SHOWN)]
    lines = sorted(lines, key=lambda line: -line.run.started_at_ns)[:RUNS_SHOWN]
    return grid("runs", run_columns(book.links), lines)


def _short(run_id: str) -> str:
    """Return a run's id as a list has room for: of a long one the beginning."""
    return run_id if len(run_id) <= ID_SHOWN else f"{run_id[: ID_SHOWN // 2]}\N{HORIZONTAL ELLIPSIS}"


def run_columns(links: Links) -> list[Column[_RunLine]]:
    """Return the columns of a list of runs."""
    return [
        Column(
            "run", "Run", lambda line: line.run.id, lambda line: link(links.to("run", id=line.run.id), _short(line.run.id)), is_text=True
        ),
        Column("started_at_ns", "Started (UTC)", lambda line: line.run.started_at_ns, lambda line: figures.stamp(line.run.started_at_ns)),
        Column("model", "Model", lambda line: line.case.key.model, is_text=True),
        Column("precision", "Precision", lambda line: line.case.key.precision, is_text=True),
        Column(
            "runtime",
            "Runtime",
            lambda line: line.case.key.runtime,
            lambda line: join([line.case.key.runtime, element("small", None, figures.count(line.case.key.threads, "thread"))]),
            is_text=True,
        ),
        Column("backend", "", lambda line: line.case.key.backend, is_shown=False),
        Column("threads", "", lambda line: line.case.key.threads, is_shown=False),
        Column("batch", "", lambda line: line.case.key.batch, is_shown=False),
        Column("latency_p50_ms", "p50 ms", lambda line: line.run.p50_ms),
        Column("latency_p90_ms", "p90 ms", lambda line: line.run.p90_ms),
        Column(
            "energy_gross_mj",
            "Gross mJ",
            lambda line: line.run.gross_mj,
            lambda line: "\N{EN DASH}" if line.run.gross_mj is None else figures.with_uncertainty(line.run.gross_mj, line.run.gross_u_mj),
        ),
        Column("energy_gross_u_mj", "", lambda line: line.run.gross_u_mj, is_shown=False),
        Column("accuracy", "Accuracy", lambda line: line.run.accuracy, lambda line: figures.typeset(figures.accuracy(line.run.accuracy))),
        Column("temperature_max_c", "Hottest °C", lambda line: line.run.temperature_c),
        Column(
            "is_throttled",
            "Throttled",
            lambda line: line.run.is_throttled,
            lambda line: {True: "yes", False: "no", None: "not told"}[line.run.is_throttled],
            is_text=True,
        ),
        Column(
            "verdict",
            "Verdict",
            lambda line: line.run.verdict,
            lambda line: element("span", {"class": None if line.run.verdict == "valid" else "doubt"}, line.run.verdict),
            is_text=True,
        ),
    ]
