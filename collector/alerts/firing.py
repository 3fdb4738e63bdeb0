"""Firings: which rules fire now, on what, since when, and where the page shows it. No state is kept here; `lifecycle` does that.

A board that dies shows it in several ways: the signs of one device are one firing.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.rules import SEVERITIES, AlertRule
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.events import FEWEST, EventMember, TrendEvent, gap_events, member_name, step_events, told_by
from edgemeter.collector.trend.finding import Missing, Step, iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event
from edgemeter.collector.trend.trend_text import (
    amount_text,
    drift_text,
    event_kind,
    event_of,
    event_text,
    gap_kind,
    level_text,
    missing_text,
    since_text,
    step_text,
)
from edgemeter.collector.trend.watch_file import Annotation
from edgemeter.collector.units.odd_boards import board_types

NS_PER_HOUR = 3_600 * 1_000_000_000
# An older step has become the level; it stays in the history.
STEP_DAYS = 60
# A step of a board type and those of its boards within so many days are one event.
SAME_EVENT_DAYS = 3

# The page shows so many days before the first day, and after.
DAYS_BEFORE, DAYS_AFTER, MS_PER_DAY = 14, 30, 86_400_000
_SHOWN = ("fleet", "device", "board", "model", "precision")

# The kinds of rules that fire for a board that may be dying, and how its alert names them.
SIGNS: Mapping[str, str] = {
    "device-lost": "device lost",
    "outbox-stopped": "outbox stopped",
    "missing": "results missing",
    "outlying-board": "outlying board",
}
# What an alert is recognised by from check to check: a rule and a subject.
AlertMark = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FiringMember:
    """One finding of an event, or one sign of a board, as it would fire alone; `rule` is that of a sign, None where all are of one rule."""

    subject: str
    text: str
    day: int
    facts: dict[str, str]
    first_days: tuple[int, int] | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that fires for `subject`: its message, and the first day (since 1970; 0: unknown). `facts` are labels for machines.

    `members` are the findings of an event or the signs of a board, empty for what is alone. `first_days` are the earliest and latest first
    day of a step, which distinguish it from other steps of the subject; None for what is a state. `sign_of` is common to all signs of a
    board, empty for what is none. With `has_runs` the runs that are missing came, but do not count.
    """

    rule: str
    subject: str
    severity: str
    title: str
    text: str
    day: int
    facts: dict[str, str]
    members: tuple[FiringMember, ...] = ()
    first_days: tuple[int, int] | None = None
    sign_of: str = ""
    has_runs: bool = False

    @property
    def marks(self) -> dict[AlertMark, tuple[int, int] | None]:
        """The rules and subjects that it fires for, with the first days of each: its own, or those of its members, and the board's."""
        marks = {(part.rule or self.rule, part.subject): part.first_days for part in self.members or (self,)}
        return marks | ({("", self.sign_of): None} if self.sign_of else {})


def page_address(firing: Firing) -> tuple[str, dict[str, str]]:
    """Return the view of the page and its fields: what all members of an event have in common, else the device, else the alerts."""
    members = [member.facts for member in firing.members] or [firing.facts]
    facts = {name: value for name, value in members[0].items() if all(other.get(name) == value for other in members)}
    if (firing.sign_of or not firing.members) and "model" not in facts:
        return ("device", {name: facts[name] for name in ("fleet", "device") if name in facts}) if "device" in facts else ("alerts", {})
    fields = {name: facts[name] for name in _SHOWN if name in facts}
    metric = facts.get("metric") or members[0].get("metric")
    if metric:
        fields["metric"] = metric
    if firing.day:
        fields["between"] = f"{(firing.day - DAYS_BEFORE) * MS_PER_DAY},{(firing.day + DAYS_AFTER) * MS_PER_DAY}"
    return "trend", fields


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

    def is_recent(self, day: int) -> bool:
        """Return whether what began or was last seen on this day is news still."""
        return self.today - day <= STEP_DAYS


def firings(rules: Sequence[AlertRule], context: FiringContext) -> list[Firing]:
    """Return what fires now, in the order of the rules; the signs of a board whose rules have the same channels are one firing."""
    fired = [(rule, firing) for rule in rules for firing in _KINDS[rule.kind](rule, context)]
    stepped = {about for rule, firing in fired if rule.kind == "step" for about in _metrics_of(firing)}
    # A board that deviates by a step that is told of, or whose runs do not count since it throttles, has that one alert.
    fired = [(rule, firing) for rule, firing in fired if not _is_explained(rule, firing, stepped)]
    signs = grouped((_board_of(rule, firing), (rule, firing)) for rule, firing in fired if rule.kind in SIGNS)
    results: dict[str | int, Firing] = {
        _board_of(rule, firing) if rule.kind in SIGNS else number: firing for number, (rule, firing) in enumerate(fired)
    }
    return list((results | {board: _of_signs(board, of_board) for board, of_board in signs.items()}).values())


def judged_trends(rules: Sequence[AlertRule], context: FiringContext) -> list[SeriesTrend]:
    """Return the trends of all series and metrics that rules about trends read."""
    read = (trend for rule in rules if rule.kind in {"step", "drift", "limit", "missing"} for trend in _trends(rule, context))
    return list({(trend.key, trend.metric): trend for trend in read}.values())


def _is_explained(rule: AlertRule, firing: Firing, stepped: Collection[tuple[str, ...]]) -> bool:
    if firing.has_runs:
        return (firing.facts["fleet"], firing.facts["device"], "is_throttled") in stepped
    return rule.kind == "outlying-board" and not _metrics_of(firing).isdisjoint(stepped)


def _metrics_of(firing: Firing) -> set[tuple[str, ...]]:
    """Return fleet, device and metric of all that a firing is about, but for what befell several boards."""
    parts = [part.facts for part in firing.members or (firing,)]
    abouts = {tuple(facts.get(name, "") for name in ("fleet", "device", "metric")) for facts in parts}
    return abouts if len({about[1] for about in abouts}) == 1 else set()


def _board_of(rule: AlertRule, firing: Firing) -> str:
    return " | ".join((firing.facts["fleet"], firing.facts["device"], *sorted(rule.channels)))


def _of_signs(board: str, signs: Sequence[tuple[AlertRule, Firing]]) -> Firing:
    """Return the firing of the signs of one board, by the most severe rule, of equals by the first; its facts stay when a sign joins."""
    firing = min((firing for _, firing in signs), key=lambda firing: SEVERITIES.index(firing.severity))
    facts = {name: firing.facts[name] for name in ("fleet", "device")}
    if len(signs) == 1:
        return replace(firing, facts=facts, members=firing.members or (_as_member(firing),), sign_of=board)
    kinds = ", ".join(dict.fromkeys(SIGNS[rule.kind] for rule, _ in signs))
    text = "; ".join(f"{SIGNS[rule.kind]}: {sign.text}" for rule, sign in signs)
    members = tuple(replace(member, rule=sign.rule) for _, sign in signs for member in sign.members or (_as_member(sign),))
    day = min((sign.day for _, sign in signs if sign.day), default=0)
    return replace(
        firing, subject=board, title=f"needs attention: {facts['device']}: {kinds}", text=f"{count(len(signs), 'sign')}: {text}", day=day,
        facts=facts, members=members, sign_of=board,
    )  # fmt: skip


def _steps(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    """Yield each event once: what one cause did to several boards, what hit a board type, what hit one board, and what is alone."""
    trends = _trends(rule, context)
    steps = _due_steps(rule, context, trends)
    of_types = [] if rule.device else _due_steps(rule, context, _trends(rule, context, by_type=True))
    fleet_wide = [event for event in step_events(steps) if event.kind == "fleet"]
    reported = told_by(fleet_wide)
    by_cause = _by_kind([member for event in fleet_wide for member in event.members])
    alone = [step for step in steps if member_name(step) not in reported]
    # What people acknowledged on several boards is no news of their type.
    declared = _by_kind([EventMember(trend, step) for trend in trends for step in trend.steps if step.state == "declared"])
    new = [of_type for of_type in of_types if not _beside(of_type, by_cause) and len(_beside(of_type, declared)) < FEWEST]
    of_type = _by_kind(new)
    yield from (_of_event(rule, event) for event in fleet_wide)
    yield from _told_once(rule, new, step_events)
    yield from _told_once(rule, [step for step in alone if not _beside(step, of_type)], step_events)


def _told_once(
    rule: AlertRule, members: Sequence[EventMember], grouped: Callable[[Sequence[EventMember]], list[TrendEvent]]
) -> Iterator[Firing]:
    events = grouped(members)
    reported = told_by(events)
    yield from (_of_event(rule, event) for event in events)
    yield from (_of_member(rule, member) for member in members if member_name(member) not in reported)


def _due_steps(rule: AlertRule, context: FiringContext, trends: Sequence[SeriesTrend]) -> list[EventMember]:
    """Return of each trend the newest confirmed step, if it is large and new enough and has the direction of the rule."""
    newest = ((trend, [step for step in trend.steps if is_event(trend.metric, step)][-1:]) for trend in trends)
    return [
        EventMember(trend, step)
        for trend, steps in newest
        for step in steps
        if _is_in_direction(rule, is_worse=step.is_worse)
        and context.is_recent(step.day)
        and (rule.at_least is None or min(abs(step.low), abs(step.high)) >= rule.at_least)
    ]


def _is_in_direction(rule: AlertRule, *, is_worse: bool) -> bool:
    return is_worse or rule.direction == "both"


# The case on all boards of a type, the metric, and whether it rose.
_Kind = tuple[SeriesKey, str, bool]


def _kind_of(member: EventMember) -> _Kind:
    return member.series.key.of_type(), member.series.metric, isinstance(member.finding, Step) and member.finding.size > 0


def _by_kind(members: Sequence[EventMember]) -> dict[_Kind, list[EventMember]]:
    return grouped((_kind_of(member), member) for member in members)


def _beside(member: EventMember, by_kind: dict[_Kind, list[EventMember]]) -> list[EventMember]:
    return [other for other in by_kind.get(_kind_of(member), ()) if abs(other.finding.day - member.finding.day) <= SAME_EVENT_DAYS]


def _drifts(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for trend in _trends(rule, context):
        if trend.drift is not None and context.is_recent(trend.drift.last_day) and _is_in_direction(rule, is_worse=trend.drift.is_worse):
            yield _of_series(rule, trend.key, trend.metric, "drift", drift_text(trend.metric, trend.drift), trend.drift.day)


def _limits(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    # A rule has one of the two.
    side, limit = ("above", rule.above) if rule.above is not None else ("below", rule.below or 0.0)
    for trend in _trends(rule, context):
        is_exceeded = trend.level > limit if side == "above" else trend.level < limit
        if is_exceeded and context.is_recent(trend.last_day):
            level = since_text(trend.metric, trend.level, trend.begin_day)
            text = f"{level}, {side} the limit {level_text(trend.metric, limit)}"
            yield _of_series(rule, trend.key, trend.metric, "limit", text, trend.begin_day)


def _missing(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    # One metric of a case is enough to report that its runs are missing.
    gaps: dict[SeriesKey, EventMember] = {}
    for trend in _trends(rule, context):
        if missing := trend.missing(context.today):
            gaps.setdefault(trend.key, EventMember(trend, missing))
    yield from _told_once(rule, list(gaps.values()), gap_events)


def _invalid(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for key in filter(rule.takes, context.history.series()):
        lately = context.history.points(key, context.history.last_day(key))
        if not lately or lately[-1][0].verdict != "invalid":
            continue
        runs = [run for run, _ in context.history.points(key)]
        newest = runs[-rule.runs :]
        if len(newest) == rule.runs and all(run.verdict == "invalid" for run in newest) and context.is_recent(newest[-1].day):
            begin = next((run for run in reversed(runs) if run.verdict != "invalid"), runs[0])
            valid = f"the last run that is not invalid was on {iso(begin.day)}"
            text = f"the newest {count(rule.runs, 'run')} are invalid, {valid}; newest run {newest[-1].id}"
            subject, title = f"{key.device} | {key.case()}", f"invalid: {key.device}, {key.case()}"
            yield Firing(rule.name, subject, rule.severity, title, text, newest[0].day, _facts(key))


def _outlying(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    keys = list(filter(rule.takes, context.history.series()))
    types = ((name, board_type) for name in rule.metrics for board_type in board_types(context.history, name, keys))
    outlying = ((name, board_type, peer) for name, board_type in types for peer in board_type.odd)
    for name, kind, unit in outlying:
        if _is_in_direction(rule, is_worse=unit.is_worse):
            apart = amount_text(name, unit.apart)
            text = f"{apart} from {kind.boards - 1} other boards over {count(unit.cases, 'case')}"
            facts = {"fleet": kind.fleet, "board": kind.board, "device": unit.device, "metric": name}
            title = f"outlying board: {unit.device}, {METRICS[name].figure.title} {apart}"
            yield Firing(rule.name, f"{kind.fleet} | {unit.device} | {name}", rule.severity, title, text, 0, facts)


def _lost(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    for device in _of_presence(rule, context):
        silent_h = (context.now_ns - device.changed_ns) / NS_PER_HOUR
        if device.state == "lost" and silent_h >= rule.hours:
            text = f"its connection broke at {stamp(device.changed_ns)} UTC, {silent_h:.0f} h ago: check power, network and board"
            yield _of_device(rule, device, "device lost", text, device.changed_ns // NS_PER_DAY)


def _stopped(rule: AlertRule, context: FiringContext) -> Iterator[Firing]:
    received: dict[tuple[str, str], int] = defaultdict(int)
    for key in context.history.series():
        received[key.fleet, key.device] = max(received[key.fleet, key.device], context.history.received_ns(key))
    for device in _of_presence(rule, context):
        last = received.get((device.fleet, device.device), device.changed_ns)
        silent_h = (context.now_ns - last) / NS_PER_HOUR
        if device.state == "online" and silent_h >= rule.hours:
            text = (
                f"it is online, but its last record came at {stamp(last)} UTC, {silent_h:.0f} h ago: check `edgemeter agent publish` there"
            )
            yield _of_device(rule, device, "outbox stopped", text, last // NS_PER_DAY)


def _of_presence(rule: AlertRule, context: FiringContext) -> list[DevicePresence]:
    return [device for device in context.devices if rule.fleet in (None, device.fleet) and rule.device in (None, device.device)]


def _of_device(rule: AlertRule, device: DevicePresence, kind: str, text: str, day: int) -> Firing:
    facts = {"fleet": device.fleet, "device": device.device}
    return Firing(rule.name, f"{device.fleet} | {device.device}", rule.severity, f"{kind}: {device.device}", text, day, facts)


def _of_member(rule: AlertRule, member: EventMember) -> Firing:
    trend, finding = member.series, member.finding
    if isinstance(finding, Missing):
        firing = _of_series(rule, trend.key, trend.metric, gap_kind([finding]), missing_text(finding), finding.day)
        return replace(firing, has_runs=finding.has_runs)
    firing = _of_series(rule, trend.key, trend.metric, "step", step_text(trend.metric, finding), finding.day)
    return replace(firing, first_days=(finding.day_low, finding.day_high))


def _of_event(rule: AlertRule, event: TrendEvent) -> Firing:
    """Return the firing of an event. Its facts stay as they are when more boards or cases join it."""
    alone = [_of_member(rule, member) for member in event.members]
    stable = ("fleet",) if event.kind == "fleet" else ("fleet", "board", "device")
    facts = {name: value for name, value in alone[0].facts.items() if name in stable}
    if event.cause:
        facts["cause"] = event.cause
    who = event_of(event)
    members = tuple(map(_as_member, alone))
    subject = f"{facts['fleet']} | {event.cause if event.kind == 'fleet' and event.cause else who} | {iso(event.day_low)}"
    title, has_runs = f"{event_kind(event)}: {who}", any(firing.has_runs for firing in alone)
    return Firing(rule.name, subject, rule.severity, title, event_text(event), event.day_low, facts, members, has_runs=has_runs)


def _as_member(firing: Firing) -> FiringMember:
    return FiringMember(firing.subject, firing.text, firing.day, firing.facts, firing.first_days)


def _of_series(rule: AlertRule, key: SeriesKey, metric: str, kind: str, text: str, day: int) -> Firing:
    # The number of devices is not in the subject: one more board is not another alert.
    who = key.device or f"all {key.board}"
    title = f"{kind}: {METRICS[metric].figure.title} of {key.model} {key.precision} on {who}"
    return Firing(rule.name, f"{who} | {key.case()} | {metric}", rule.severity, title, text, day, _facts(key) | {"metric": metric})


def _facts(key: SeriesKey) -> dict[str, str]:
    facts = {name: getattr(key, name) for name in ("fleet", "board", "device", "model", "precision")} | {"case": key.case()}
    return {name: value for name, value in facts.items() if value}


def _trends(rule: AlertRule, context: FiringContext, *, by_type: bool = False) -> list[SeriesTrend]:
    return watch.trends_of(context.history, context.annotations, rule.metrics, rule, by_type=by_type)


_KINDS: dict[str, Callable[[AlertRule, FiringContext], Iterator[Firing]]] = {
    "step": _steps,
    "drift": _drifts,
    "limit": _limits,
    "missing": _missing,
    "invalid": _invalid,
    "outlying-board": _outlying,
    "device-lost": _lost,
    "outbox-stopped": _stopped,
}
