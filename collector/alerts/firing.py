"""Firings: which rules fire now, on what, and since when. No state is kept here; `lifecycle` does that."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.runs.cases import SeriesKey
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.events import FEWEST, EventMember, TrendEvent, gap_events, member_name, step_events, told_by
from edgemeter.collector.trend.finding import Missing, Step, iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS, RELATIVE
from edgemeter.collector.trend.rise import RiseLimits, rise_of
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event
from edgemeter.collector.trend.trend_text import (
    amount_text,
    drift_text,
    event_kind,
    event_of,
    event_text,
    level_text,
    missing_text,
    rise_text,
    scatter_text,
    step_text,
)
from edgemeter.collector.trend.watch_file import Annotation, cuts
from edgemeter.collector.units.board_types import board_types

NS_PER_HOUR = 3_600 * 1_000_000_000
# An older step has become the level; it stays in the history.
STEP_DAYS = 60
# A step of a board type and those of its boards within so many days are one event.
SAME_EVENT_DAYS = 3
# One board is behind a step of its type if it accounts for this share of it.
ONE_BOARDS_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class FiringMember:
    """One finding of an event, as it would fire alone."""

    subject: str
    text: str
    day: int
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that fires for `subject`: its message, and the first day (since 1970; 0: unknown). `facts` are labels for machines.

    `members` are the findings of an event, empty for a finding that is alone.
    """

    rule: str
    subject: str
    severity: str
    title: str
    text: str
    day: int
    facts: dict[str, str]
    members: tuple[FiringMember, ...] = ()

    @property
    def subjects(self) -> frozenset[str]:
        """The subjects that it fires for: its own, or those of its members."""
        return frozenset(one.subject for one in self.members) or frozenset({self.subject})


@dataclass(frozen=True, slots=True)
class FiringContext:
    """The data that rules are evaluated on: figures, annotations, the presence of devices, and the time."""

    history: History
    annotations: Sequence[Annotation]
    devices: Sequence[DevicePresence]
    now_ns: int

    @property
    def today(self) -> int:
        """Return the day (since 1970)."""
        return self.now_ns // NS_PER_DAY


def firings(rules: Sequence[AlertRule], context: FiringContext) -> list[Firing]:
    """Return what fires now, in the order of the rules."""
    return [firing for rule in rules for firing in _KINDS[rule.kind](rule, context)]


def _steps(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    """Yield each event once: what one cause did to several boards, what hit a board type, what hit one board, and what is alone."""
    trends = _trends(rule, context)
    own = _due_steps(rule, context, trends)
    of_types = [] if rule.device else _due_steps(rule, context, _trends(rule, context, by_type=True))
    fleet_wide = [event for event in step_events(own) if event.kind == "fleet"]
    told = told_by(fleet_wide)
    by_cause = _by_kind([one for event in fleet_wide for one in event.members])
    alone = [one for one in own if member_name(one) not in told]
    # What people acknowledged on several boards is no news of their type.
    declared = _by_kind([EventMember(one, step) for one in trends for step in one.steps if step.state == "declared"])
    of_boards = _by_kind(alone)
    new = [
        one
        for one in of_types
        if not _beside(one, by_cause) and len(_beside(one, declared)) < FEWEST and not _is_of_one_board(one, _beside(one, of_boards))
    ]
    of_type = _by_kind(new)
    yield from (_of_event(rule, event) for event in fleet_wide)
    yield from _told_once(rule, new, step_events)
    yield from _told_once(rule, [one for one in alone if not _beside(one, of_type)], step_events)


def _told_once(
    rule: AlertRule, members: Sequence[EventMember], grouped: Callable[[Sequence[EventMember]], list[TrendEvent]]
) -> Iterator[Firing]:
    events = grouped(members)
    told = told_by(events)
    yield from (_of_event(rule, event) for event in events)
    yield from (_of_member(rule, one) for one in members if member_name(one) not in told)


def _due_steps(rule: AlertRule, context: FiringContext, trends: Sequence[SeriesTrend]) -> list[EventMember]:
    found = ((one, _newest(rule, one)) for one in trends)
    return [EventMember(one, step) for one, step in found if step is not None and _is_due(rule, step, context)]


# The case on all boards of a type, the metric, and whether it rose.
_Kind = tuple[SeriesKey, str, bool]


def _kind_of(member: EventMember) -> _Kind:
    return member.series.key.of_type(), member.series.metric, isinstance(member.finding, Step) and member.finding.size > 0


def _by_kind(members: Sequence[EventMember]) -> dict[_Kind, list[EventMember]]:
    found: dict[_Kind, list[EventMember]] = {}
    for one in members:
        found.setdefault(_kind_of(one), []).append(one)
    return found


def _beside(member: EventMember, others: dict[_Kind, list[EventMember]]) -> list[EventMember]:
    return [one for one in others.get(_kind_of(member), ()) if abs(one.finding.day - member.finding.day) <= SAME_EVENT_DAYS]


def _is_of_one_board(of_type: EventMember, boards: Sequence[EventMember]) -> bool:
    """Return whether a step of a board type is that of its only board that stepped, which moves their mean."""
    if len(boards) != 1 or not isinstance(of_type.finding, Step) or not isinstance(boards[0].finding, Step):
        return False
    return abs(boards[0].finding.size) / of_type.series.devices >= ONE_BOARDS_RATIO * abs(of_type.finding.size)


def _newest(rule: AlertRule, one: SeriesTrend) -> Step | None:
    """Return the newest confirmed step that is as large as what matters, if it has the direction of the rule."""
    steps = [step for step in one.steps if is_event(one.metric, step)]
    if not steps or not (steps[-1].is_worse or rule.direction == "both"):
        return None
    return steps[-1]


def _is_due(rule: AlertRule, step: Step, context: FiringContext) -> bool:
    sure = min(abs(step.low), abs(step.high))
    return context.today - step.day <= STEP_DAYS and (rule.at_least is None or sure >= rule.at_least)


def _drifts(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for one in _trends(rule, context):
        if one.drift is not None and (one.drift.is_worse or rule.direction == "both"):
            yield _of_series(rule, one, "drift", drift_text(one.metric, one.drift), one.drift.day)


def _rises(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for key in filter(rule.selection().takes, context.history.series()):
        for name in RELATIVE.intersection(rule.metrics):
            days = watch.points(context.history, key, name)
            begin = max(cuts(context.annotations, key, name), default=0)
            found = rise_of(METRICS[name], days, RiseLimits(rule.by, rule.against_days, rule.over_days), begin)
            if found is None or context.today - found.last_day > STEP_DAYS or not (found.is_worse or rule.direction == "both"):
                continue
            text = rise_text(name, found)
            yield _of_metric(rule, key, name, "rise" if found.size > 0 else "fall", text, found.day)


def _scatters(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for one in _trends(rule, context):
        if one.scatter is not None and (one.scatter.ratio > 1 or rule.direction == "both"):
            yield _of_series(rule, one, "scatter", scatter_text(one.scatter), one.scatter.day)


def _limits(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for one in _trends(rule, context):
        limit = rule.above if rule.above is not None else rule.below
        is_exceeded = limit is not None and (one.level > limit if rule.above is not None else one.level < limit)
        if is_exceeded and context.today - one.last_day <= STEP_DAYS and limit is not None:
            side = "above" if rule.above is not None else "below"
            text = f"{level_text(one.metric, one.level)} since {iso(one.begin_day)}, {side} the limit {level_text(one.metric, limit)}"
            yield _of_series(rule, one, "limit", text, one.begin_day)


def _missing(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    # One metric of a case is enough to report that its runs are missing.
    found: dict[SeriesKey, EventMember] = {}
    for one in _trends(rule, context):
        missing = one.missing(context.today)
        if missing is not None:
            found.setdefault(one.key, EventMember(one, missing))
    yield from _told_once(rule, list(found.values()), gap_events)


def _invalid(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    selection = rule.selection()
    for key in context.history.series():
        if not selection.takes(key):
            continue
        lately = context.history.points(key, context.history.last_day(key))
        if not lately or lately[-1][0].verdict != "invalid":
            continue
        runs = [run for run, _ in context.history.points(key)]
        newest = runs[-rule.runs :]
        if len(newest) == rule.runs and all(run.verdict == "invalid" for run in newest) and context.today - newest[-1].day <= STEP_DAYS:
            begin = next((run for run in reversed(runs) if run.verdict != "invalid"), runs[0])
            last = newest[-1]
            text = f"the newest {count(rule.runs, 'run')} are invalid, the last valid one was on {iso(begin.day)}; newest run {last.id}"
            yield Firing(
                rule.name,
                f"{key.device} | {key.case()}",
                rule.severity,
                f"invalid: {key.device}, {key.case()}",
                text,
                newest[0].day,
                _facts(key),
            )


def _outlying(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    selection = rule.selection()
    keys = [key for key in context.history.series() if selection.takes(key)]
    for name in rule.metrics:
        for kind in board_types(context.history, name, keys, with_cases=False):
            for unit in kind.sick or ():
                worse = (unit.apart > 0) == (METRICS[name].worse == "higher")
                if not (worse or rule.direction == "both"):
                    continue
                apart = amount_text(name, unit.apart)
                look_at = "; ".join(unit.look_at)
                text = f"{apart} from {kind.boards - 1} other boards over {count(unit.cases, 'case')}; check: {look_at}"
                facts = {"fleet": kind.fleet, "board": kind.board, "device": unit.device, "metric": name}
                title = f"outlying board: {unit.device}, {name} {apart}"
                yield Firing(rule.name, f"{kind.fleet} | {unit.device} | {name}", rule.severity, title, text, 0, facts)


def _lost(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for device in _of_presence(rule, context):
        silent_h = (context.now_ns - device.changed_ns) / NS_PER_HOUR
        if device.state == "lost" and silent_h >= rule.hours:
            text = f"its connection broke at {stamp(device.changed_ns)} UTC, {silent_h:.0f} h ago: check power, network and board"
            yield _of_device(rule, device, "device lost", text, device.changed_ns // NS_PER_DAY)


def _stopped(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    received: dict[tuple[str, str], int] = {}
    for key in context.history.series():
        last = context.history.received_ns(key)
        received[key.fleet, key.device] = max(received.get((key.fleet, key.device), 0), last)
    for device in _of_presence(rule, context):
        last = received.get((device.fleet, device.device), device.changed_ns)
        silent_h = (context.now_ns - last) / NS_PER_HOUR
        if device.state == "online" and silent_h >= rule.hours:
            text = (
                f"it is online, but its last record came at {stamp(last)} UTC, {silent_h:.0f} h ago: check `edgemeter agent publish` there"
            )
            yield _of_device(rule, device, "outbox stopped", text, last // NS_PER_DAY)


def _of_presence(rule: AlertRule, context: FiringContext) -> list[DevicePresence]:
    return [one for one in context.devices if rule.fleet in (None, one.fleet) and rule.device in (None, one.device)]


def _of_device(rule: AlertRule, device: DevicePresence, what: str, text: str, day: int) -> Firing:
    facts = {"fleet": device.fleet, "device": device.device}
    return Firing(rule.name, f"{device.fleet} | {device.device}", rule.severity, f"{what}: {device.device}", text, day, facts)


def _of_series(rule: AlertRule, one: SeriesTrend, what: str, text: str, day: int) -> Firing:
    return _of_metric(rule, one.key, one.metric, what, text, day)


def _of_member(rule: AlertRule, member: EventMember) -> Firing:
    one, finding = member.series, member.finding
    if isinstance(finding, Missing):
        return _of_series(rule, one, "missing", missing_text(finding), finding.day)
    return _of_series(rule, one, "step", step_text(one.metric, finding), finding.day)


def _of_event(rule: AlertRule, event: TrendEvent) -> Firing:
    """Return the firing of an event. Its facts stay as they are when more boards or cases join it."""
    alone = [_of_member(rule, one) for one in event.members]
    stable = ("fleet",) if event.kind == "fleet" else ("fleet", "board", "device")
    facts = {name: value for name, value in alone[0].facts.items() if name in stable}
    if event.cause:
        facts["cause"] = event.cause
    who = event_of(event)
    members = tuple(FiringMember(one.subject, one.text, one.day, one.facts) for one in alone)
    subject = f"{facts['fleet']} | {event.cause if event.kind == 'fleet' and event.cause else who} | {iso(event.day_low)}"
    return Firing(rule.name, subject, rule.severity, f"{event_kind(event)}: {who}", event_text(event), event.day_low, facts, members)


def _of_metric(rule: AlertRule, key: SeriesKey, metric: str, what: str, text: str, day: int) -> Firing:
    # The number of devices is not in the subject: one more board is not another alert.
    who = key.device or f"all {key.board}"
    title = f"{what}: {metric} of {key.model} {key.precision} on {who}"
    return Firing(rule.name, f"{who} | {key.case()} | {metric}", rule.severity, title, text, day, _facts(key) | {"metric": metric})


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


def _trends(rule: AlertRule, context: FiringContext, *, by_type: bool = False) -> list[SeriesTrend]:
    return watch.trends_of(context.history, context.annotations, rule.metrics, rule.selection(), by_type=by_type)


_KINDS: dict[str, Callable[[AlertRule, FiringContext], Iterator[Firing]]] = {
    "step": _steps,
    "rise": _rises,
    "drift": _drifts,
    "scatter": _scatters,
    "limit": _limits,
    "missing": _missing,
    "invalid": _invalid,
    "sick-unit": _outlying,
    "device-lost": _lost,
    "outbox-stopped": _stopped,
}
