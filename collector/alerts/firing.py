"""Firings: which rules are broken now, by what, and since when. Nothing is remembered here; `lifecycle` does that."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgemeter.collector.alerts.rules import Rule
from edgemeter.collector.keep.presence import Device
from edgemeter.collector.show.figures import count, stamp
from edgemeter.collector.trend import watch, wording
from edgemeter.collector.trend.annotations import Annotation
from edgemeter.collector.trend.finding import Step, iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_figures import NS_PER_DAY, SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.units.board_types import board_types

NS_PER_HOUR = 3_600 * 1_000_000_000
# A step so old has become the level; it stays in the history.
STEP_DAYS = 60
# A step of a board type and those of its boards are one event when they lie so close.
SAME_EVENT_DAYS = 3


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule is broken by `subject`: what to say of it, and the day (since 1970) from which on, 0 where that is not known.

    `facts` are labels for machines.
    """

    rule: str
    subject: str
    severity: str
    title: str
    text: str
    day: int
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class World:
    """What rules look at: figures, what people wrote down, what devices said of themselves, and the time."""

    history: History
    annotations: Sequence[Annotation]
    devices: Sequence[Device]
    now_ns: int

    @property
    def today(self) -> int:
        """Return the day (since 1970)."""
        return self.now_ns // NS_PER_DAY


def firings(rules: Sequence[Rule], world: World) -> list[Firing]:
    """Return what is broken now, in the order of the rules."""
    return [firing for rule in rules for firing in _KINDS[rule.kind](rule, world)]


def _steps(rule: Rule, world: World) -> Iterator[Firing]:
    of_types = [
        (one, step)
        for one in _trends(rule, world, by_type=True)
        for step in [_newest(rule, one)]
        if step is not None and rule.device is None
    ]
    told = {(one.key, one.metric, step.size > 0): step.day for one, step in of_types if _is_due(rule, step, world)}
    for one, step in of_types:
        if _is_due(rule, step, world):
            yield _of_series(rule, one, "step", wording.of_step(one.metric, step), step.day)
    for one in _trends(rule, world):
        newest = _newest(rule, one)
        if newest is None or not _is_due(rule, newest, world):
            continue
        common = told.get((one.key.of_type(), one.metric, newest.size > 0))
        # What befell the whole type is told once, not once for every board.
        if common is None or abs(common - newest.day) > SAME_EVENT_DAYS:
            yield _of_series(rule, one, "step", wording.of_step(one.metric, newest), newest.day)


def _newest(rule: Rule, one: SeriesTrend) -> Step | None:
    """Return the newest confirmed step that matters, where it goes the way that the rule asks for."""
    steps = [step for step in one.steps if step.state == "confirmed" and step.matters]
    if not steps or not (steps[-1].is_worse or rule.direction == "both"):
        return None
    return steps[-1]


def _is_due(rule: Rule, step: Step, world: World) -> bool:
    sure = min(abs(step.low), abs(step.high))
    return world.today - step.day <= STEP_DAYS and (rule.at_least is None or sure >= rule.at_least)


def _drifts(rule: Rule, world: World) -> Iterator[Firing]:
    for one in _trends(rule, world):
        if one.drift is not None and (one.drift.is_worse or rule.direction == "both"):
            yield _of_series(rule, one, "drift", wording.of_drift(one.metric, one.drift), one.drift.day)


def _scatters(rule: Rule, world: World) -> Iterator[Firing]:
    for one in _trends(rule, world):
        if one.scatter is not None and (one.scatter.ratio > 1 or rule.direction == "both"):
            yield _of_series(rule, one, "scatter", wording.of_scatter(one.scatter), one.scatter.day)


def _limits(rule: Rule, world: World) -> Iterator[Firing]:
    for one in _trends(rule, world):
        limit = rule.above if rule.above is not None else rule.below
        is_broken = limit is not None and (one.level > limit if rule.above is not None else one.level < limit)
        if is_broken and world.today - one.last_day <= STEP_DAYS and limit is not None:
            side = "above" if rule.above is not None else "below"
            text = f"{wording.level(one.metric, one.level)} since {iso(one.begin_day)}, {side} the limit {wording.level(one.metric, limit)}"
            yield _of_series(rule, one, "limit", text, one.begin_day)


def _missing(rule: Rule, world: World) -> Iterator[Firing]:
    # One figure of a case is enough to say that its runs stopped coming.
    seen: set[SeriesKey] = set()
    for one in _trends(rule, world):
        missing = one.missing(world.today)
        if missing is not None and one.key not in seen:
            seen.add(one.key)
            yield _of_series(rule, one, "missing", wording.of_missing(missing), missing.day)


def _invalid(rule: Rule, world: World) -> Iterator[Firing]:
    selection = rule.selection()
    for key in world.history.series():
        if not selection.takes(key):
            continue
        runs = [run for run, _ in world.history.points(key)]
        newest = runs[-rule.runs :]
        if len(newest) == rule.runs and all(run.verdict == "invalid" for run in newest) and world.today - newest[-1].day <= STEP_DAYS:
            begin = next((run for run in reversed(runs) if run.verdict != "invalid"), runs[0])
            last = newest[-1]
            text = f"the newest {count(rule.runs, 'run')} are invalid, the last valid one was on {iso(begin.day)}; newest run {last.run}"
            yield Firing(
                rule.name,
                f"{key.device} | {key.case()}",
                rule.severity,
                f"invalid: {key.device}, {key.case()}",
                text,
                newest[0].day,
                _facts(key),
            )


def _sick(rule: Rule, world: World) -> Iterator[Firing]:
    selection = rule.selection()
    keys = [key for key in world.history.series() if selection.takes(key)]
    for name in rule.metrics:
        for kind in board_types(world.history, name, keys):
            for unit in kind.sick or ():
                worse = (unit.apart > 0) == (METRICS[name].worse == "higher")
                if not (worse or rule.direction == "both"):
                    continue
                apart = wording.amount(name, unit.apart)
                look_at = "; ".join(unit.look_at)
                text = f"{apart} apart from {kind.boards - 1} other boards over {count(unit.cases, 'case')}; look at: {look_at}"
                facts = {"fleet": kind.fleet, "board": kind.board, "device": unit.device, "metric": name}
                title = f"sick board: {unit.device}, {name} {apart}"
                yield Firing(rule.name, f"{kind.fleet} | {unit.device} | {name}", rule.severity, title, text, 0, facts)


def _lost(rule: Rule, world: World) -> Iterator[Firing]:
    for device in _of_presence(rule, world):
        silent_h = (world.now_ns - device.changed_ns) / NS_PER_HOUR
        if device.state == "lost" and silent_h >= rule.hours:
            text = f"its connection broke at {stamp(device.changed_ns)} UTC, {silent_h:.0f} h ago: power, network, or the board itself"
            yield _of_device(rule, device, "device lost", text, device.changed_ns // NS_PER_DAY)


def _stopped(rule: Rule, world: World) -> Iterator[Firing]:
    received: dict[tuple[str, str], int] = {}
    for key in world.history.series():
        last = world.history.received_ns(key)
        received[key.fleet, key.device] = max(received.get((key.fleet, key.device), 0), last)
    for device in _of_presence(rule, world):
        last = received.get((device.fleet, device.device), device.changed_ns)
        silent_h = (world.now_ns - last) / NS_PER_HOUR
        if device.state == "online" and silent_h >= rule.hours:
            text = (
                f"it is online, but its last record came at {stamp(last)} UTC, {silent_h:.0f} h ago: does `edgemeter publish` go through?"
            )
            yield _of_device(rule, device, "outbox stopped", text, last // NS_PER_DAY)


def _of_presence(rule: Rule, world: World) -> list[Device]:
    return [one for one in world.devices if rule.fleet in (None, one.fleet) and rule.device in (None, one.device)]


def _of_device(rule: Rule, device: Device, what: str, text: str, day: int) -> Firing:
    facts = {"fleet": device.fleet, "device": device.device}
    return Firing(rule.name, f"{device.fleet} | {device.device}", rule.severity, f"{what}: {device.device}", text, day, facts)


def _of_series(rule: Rule, one: SeriesTrend, what: str, text: str, day: int) -> Firing:
    # The number of devices is not in the subject: a board more is no other alert.
    who = one.key.device or f"all {one.key.board}"
    title = f"{what}: {one.metric} of {one.key.model} {one.key.precision} on {who}"
    return Firing(
        rule.name, f"{who} | {one.key.case()} | {one.metric}", rule.severity, title, text, day, _facts(one.key) | {"metric": one.metric}
    )


def _facts(key: SeriesKey) -> dict[str, str]:
    facts = {
        "fleet": key.fleet,
        "board": key.board,
        "device": key.device,
        "model": key.model,
        "precision": key.precision,
        "case": key.case(),
    }
    return {name: value for name, value in facts.items() if value}


def _trends(rule: Rule, world: World, *, by_type: bool = False) -> list[SeriesTrend]:
    return watch.look(world.history, world.annotations, rule.metrics, rule.selection(), by_type=by_type)


_KINDS: dict[str, Callable[[Rule, World], Iterator[Firing]]] = {
    "step": _steps,
    "drift": _drifts,
    "scatter": _scatters,
    "limit": _limits,
    "missing": _missing,
    "invalid": _invalid,
    "sick-unit": _sick,
    "device-lost": _lost,
    "outbox-stopped": _stopped,
}
